"""Does `tonnage lint` read what it is given, print it in every form, and leave with the right code?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
CLEAN = "vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16"


def test_a_command_after_dashes_is_linted(run: Run) -> None:
    """Its own flags are not ours."""
    code, out, _ = run("lint", "--engine", "vllm:0.24", "--", *CLEAN.split(), "--swap-space", "8")
    assert code == 1 and "flag-unknown" in out and "0.17" in out


def test_a_clean_command_says_what_was_read(run: Run) -> None:
    """And exits 0."""
    code, out, _ = run("lint", "--", *CLEAN.split())
    assert code == 0 and out.startswith("Nothing wrong found in 1 engine (vllm /models/m)")


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_warnings_fail_only_where_they_are_asked_to(run: Run, strict: tuple[str, ...], code: int) -> None:
    """Errors always do."""
    assert run("lint", *strict, "--", *CLEAN.split(), "--trust-remote-code")[0] == code


def test_json_has_the_fields_of_the_contract(run: Run, tmp_path: Path) -> None:
    """Findings with their places, what was not judged, and what was read."""
    path = tmp_path / "a.sh"
    path.write_text(f"# x\n{CLEAN} --gpu-memory-utilization 0.99\n")
    code, out, _ = run("lint", path, "--format", "json")
    value = json.loads(out)
    (found,) = value["findings"]
    assert code == 0 and value["schema"] == "tonnage.lint/1"
    assert {"rule", "severity", "file", "line", "column", "message", "why", "fix"} <= set(found)
    assert (found["rule"], found["file"], found["line"]) == ("utilization-high", str(path), 2)
    assert {"rule", "needs"} == set(value["not_judged"][0])


def test_github_and_sarif(run: Run) -> None:
    """One annotation a finding; one SARIF result a finding, with a rule that is described."""
    command = (*CLEAN.split(), "--trust-remote-code")
    out = run("lint", "--format", "github", "--", *command)[1]
    assert out.startswith("::warning file=command,line=1,col=") and "title=trust-remote-code::" in out
    log = json.loads(run("lint", "--format", "sarif", "--", *command)[1])
    driver, (result,) = log["runs"][0]["tool"]["driver"], log["runs"][0]["results"]
    assert (log["version"], result["level"]) == ("2.1.0", "warning")
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "trust-remote-code"


def test_select_and_ignore(run: Run) -> None:
    """By name, several at once; a name that is none is an error with the nearest."""
    assert "trust-remote-code" not in run("lint", "--ignore", "trust-remote-code,hub-model", "--", *CLEAN.split(), "--trust-remote-code")[1]
    assert "Nothing wrong" in run("lint", "--select", "bind-open", "--", "vllm", "serve", "A/B", "--host", "127.0.0.1")[1]
    code, _, err = run("lint", "--select", "bind-opn", "--", *CLEAN.split())
    assert code == 2 and "bind-open" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "nothing is given", id="nothing"),
        pytest.param(("--",), "no command follows", id="nothing after dashes"),
        pytest.param(("--", "ls", "-l"), "starts no engine", id="no engine"),
        pytest.param(("missing.yaml",), "no such file", id="no file"),
        pytest.param(("--gpu", "l44", "--", "vllm", "serve", "/m"), "no card is named", id="no card"),
        pytest.param(("--model", "qwen3-8c", "--", "vllm", "serve", "/m"), "no model is named", id="no model"),
        pytest.param(("--engine", "vlm:0.3", "--", "vllm", "serve", "/m"), "engine 'vlm'", id="no engine by that name"),
    ],
)
def test_bad_input_is_a_line_and_a_hint(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit 2, never a traceback."""
    code, _, err = run("lint", *arguments)
    assert (code == 2 and said in err and "hint:" in err) or "no such file" in err


def test_a_folder_is_all_its_files_together(run: Run, tmp_path: Path) -> None:
    """Manifests beside each other are judged together."""
    (tmp_path / "a.sh").write_text(f"{CLEAN}\n")
    (tmp_path / "b.yaml").write_text("services:\n  a:\n    image: vllm/vllm-openai\n    command: [--model, /m]\n")
    out = json.loads(run("lint", tmp_path, "--json")[1])
    assert [server["form"] for server in out["servers"]] == ["command", "compose"]


def test_the_rules_are_listed(run: Run) -> None:
    """Name, severity, title."""
    code, out, _ = run("lint", "--rules")
    assert code == 0 and any(line.split()[:2] == ["bind-open", "error"] for line in out.splitlines())


def test_context_options_win_over_the_file(run: Run, tmp_path: Path) -> None:
    """The file says a T4, the option a card that has bfloat16."""
    path = tmp_path / "context.json"
    path.write_text('{"gpu": "T4", "engine": "vllm 0.24"}')
    command = ("--", *CLEAN.split(), "--dtype", "bfloat16")
    assert "precision-unsupported" in run("lint", "--context-file", path, *command)[1]
    assert "precision-unsupported" not in run("lint", "--context-file", path, "--gpu", "l4", *command)[1]


def test_a_command_without_dashes_is_read_as_one(run: Run) -> None:
    """Programs that start engines begin a command line."""
    assert run("lint", *CLEAN.split()) == run("lint", "--", *CLEAN.split())


def test_a_log_is_sent_to_diagnose(run: Run, tmp_path: Path) -> None:
    """And no rule left is said."""
    (tmp_path / "x.log").write_text("(APIServer pid=1) INFO 09-02 12:00:00 [api_utils.py:286] hello\n")
    code, _, err = run("lint", tmp_path / "x.log")
    assert code == 2 and "tonnage diagnose" in err
    code, _, err = run("lint", "--select", "host-ipc", "--ignore", "host-ipc", "--", *CLEAN.split())
    assert code == 2 and "no rule" in err
