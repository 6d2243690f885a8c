"""`tonnage plan` as a person meets it: screens, exit codes, JSON, and bad input."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.cli import main

Run = Callable[..., tuple[int, str, str]]
DEMO = ("plan", "qwen3.5-4b", "--gpu", "l4", "--weights", "fp8", "--kv", "fp8", "--users", "16", "--context", "24k")
BASE = ("--gpu", "l4", "--users", "4", "--context", "8k")
CONFIG = Path(__file__).parents[2] / "src" / "tonnage" / "facts" / "data" / "models" / "Qwen--Qwen3-8B.json"


def test_the_first_line_answers(run: Run) -> None:
    """Verdict, users, tokens and card stand in the first line; the exit code is 0."""
    code, out, err = run(*DEMO)
    assert code == 0
    assert out.splitlines()[0].startswith("Fits: 16 users at 24,000 tokens on one L4. It admits ")
    assert err == ""


def test_80_columns_are_enough(run: Run) -> None:
    """No line of the default screen is wider, but for the last one, which is to be copied."""
    _, out, _ = run(*DEMO)
    assert max(len(line) for line in out.splitlines()[:-1]) <= 80


@pytest.mark.parametrize("columns", ["40", "60", "200"])
def test_other_widths_do_not_break(run: Run, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """A narrow terminal wraps below the label; a wide one is not filled."""
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = run(*DEMO)
    assert code == 0
    assert "weights" in out


def test_not_fitting_exits_1_with_ways_to_fit(run: Run) -> None:
    """The shortfall is said, and the nearest ways are listed with the users they give."""
    code, out, _ = run("plan", "qwen3-32b", "--gpu", "l4", "--count", "2", "--users", "4", "--context", "8k")
    assert code == 1
    assert out.startswith("Does not fit")
    assert "Nearest ways to more:" in out
    assert "fits" in out.split("Nearest ways to more:")[1]


def test_a_refusal_says_why_and_what_is_legal(run: Run) -> None:
    """Heads that do not divide: the reason, and sizes that do."""
    code, out, _ = run("plan", "qwen3-8b", *BASE, "--tp", "3")
    assert code == 1
    assert out.startswith("Does not start: 32 attention heads do not divide by tensor-parallel-size 3.")


def test_json_is_the_same_value(run: Run, tmp_path: Path) -> None:
    """--json prints what --out writes."""
    file = tmp_path / "plan.json"
    code, out, _ = run(*DEMO, "--json", "--out", str(file))
    assert code == 0
    assert json.loads(out) == json.loads(file.read_text())


def test_out_is_written_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    """A folder that is not there: one line, exit 2, nothing left behind."""
    code, _, err = run(*DEMO, "--out", str(tmp_path / "none" / "plan.json"))
    assert code == 2
    assert "cannot be written" in err
    assert list(tmp_path.iterdir()) == []


def _folder(tmp_path: Path, **fields: Any) -> Path:
    config = {**json.loads(CONFIG.read_text())["config"], **fields}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


BAD = {
    "layers-a-text": {"num_hidden_layers": "x"},
    "zero-heads": {"num_attention_heads": 0},
    "negative-width": {"hidden_size": -5},
    "nan-width": {"hidden_size": float("nan")},
    "no-end-of-layers": {"num_hidden_layers": 10**9},
    "unknown-architecture": {"architectures": ["FooForCausalLM"]},
    "unread-field": {"kv_lora_rank": 512},
    "unknown-kind-of-layer": {"layer_types": ["foo_attention"] * 36, "sliding_window": 9, "use_sliding_window": True},
    "unknown-quantisation": {"quantization_config": {"quant_method": "magic"}},
    "heads-that-do-not-go-together": {"num_key_value_heads": 7},
}


@pytest.mark.parametrize("fields", [pytest.param(value, id=name) for name, value in BAD.items()])
def test_bad_configs_are_one_line_and_a_hint(run: Run, tmp_path: Path, fields: dict[str, Any]) -> None:
    """The field is named; exit 2; no traceback."""
    code, out, err = run("plan", str(_folder(tmp_path, **fields)), *BASE)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    name = next(iter(fields)).removesuffix("s")
    assert name in err or str(next(iter(fields.values()))) in err or "quantisation" in err


def test_a_config_cut_in_half(run: Run, tmp_path: Path) -> None:
    """It says that the file is not whole."""
    (tmp_path / "config.json").write_text(CONFIG.read_text()[:100])
    code, _, err = run("plan", str(tmp_path), *BASE)
    assert code == 2
    assert "is not whole JSON" in err


def test_a_header_of_five_gigabytes_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    """A length is not believed before it is checked."""
    folder = _folder(tmp_path)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 5_000_000_000) + b"{}")
    code, _, err = run("plan", str(folder), *BASE)
    assert code == 2
    assert "5,000,000,000" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("plan", "qwen3.5-5b", *BASE), "closest are", id="model-typo"),
        pytest.param(("plan", "qwen3-8b", "--gpu", "l44", "--users", "4", "--context", "8k"), "closest are", id="card-typo"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--weights", "fp9"), "closest are", id="precision-typo"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--contxt", "8k"), "--context", id="option-typo"),
        pytest.param(("plan", "qwen3-8b", "--gpu", "l4", "--users", "-4", "--context", "8k"), "between 1", id="negative-users"),
        pytest.param(("plan", "qwen3-8b", "--gpu", "l4", "--users", "4", "--context", "nan"), "not a number", id="nan-context"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--utilization", "1.5"), "between 0 and 1", id="utilization"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--count", "4", "--tp", "2"), "--count 4 is not", id="count-and-tp"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--lora", "4"), "4:16", id="lora"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--mtp", "1"), "no draft layers", id="mtp-without-drafts"),
        pytest.param(("plan", "qwen3-8b", *BASE, "--engine", "vllm:x"), "vllm:0.33", id="release"),
        pytest.param(("plam",), "closest is plan", id="command-typo"),
        pytest.param(("plan", "nosuch/config.json", *BASE), "no such file", id="missing-file"),
    ],
)
def test_typos_get_a_hint(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, one error line, and a hint that helps."""
    code, _, err = run(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert words in err


def test_errors_are_json_where_json_is_asked_for(run: Run) -> None:
    """`{error {message, hint, where}}` on stdout, exit 2."""
    code, out, err = run("plan", "qwen3.5-5b", *BASE, "--json")
    assert code == 2
    assert err == ""
    assert set(json.loads(out)["error"]) == {"message", "hint", "where"}


def test_a_fine_tune_borrows_a_shape(run: Run) -> None:
    """--like lends a listed model's shape, and the note says so."""
    code, out, _ = run("plan", "our-tuned-8b", "--like", "qwen3-8b", *BASE)
    assert code in (0, 1)
    assert "as asked by --like" in " ".join(out.split())


def test_an_assumption_is_marked_in_every_output(run: Run, tmp_path: Path) -> None:
    """--assume full-attention: the note on the screen and in the value."""
    folder = _folder(tmp_path, architectures=["FooForCausalLM"])
    _, out, _ = run("plan", str(folder), *BASE, "--assume", "full-attention")
    assert "an upper bound" in " ".join(out.split())
    _, out, _ = run("plan", str(folder), *BASE, "--assume", "full-attention", "--json")
    value = json.loads(out)
    assert value["model"]["confidence"] == "assumed"
    assert any("upper bound" in note for note in value["model"]["notes"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=12), max_size=4), st.text(max_size=12), st.text(max_size=12))
def test_no_words_make_it_fall_over(run: Run, extra: list[str], users: str, context: str) -> None:
    """Any arguments at all end in an exit code of the contract."""
    code, _, err = run("plan", "qwen3-8b", "--gpu", "l4", f"--users={users}", f"--context={context}", *extra)
    assert code in (0, 1, 2)
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_error() -> None:
    """`tonnage models | head -1` says nothing on stderr."""
    command = f"{sys.executable} -m tonnage models 2>/dev/null | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [("models",), ("models", "qwen3.5-4b"), ("gpus",), ("gpus", "h100"), ("engines",), ("engines", "vllm:0.28")]
)
def test_the_catalogue_speaks_text_and_json(run: Run, arguments: tuple[str, ...]) -> None:
    """Every listing has a text and a JSON form with a schema."""
    code, out, _ = run(*arguments)
    assert code == 0
    assert out
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert json.loads(out)["schema"].startswith("tonnage.")


@pytest.mark.parametrize("width", [40, 50, 60, 80, 110])
@pytest.mark.parametrize("also", [[], ["--weights", "any", "--kv", "any"], ["--spare", "1", "--growth", "5%"]])
def test_a_search_fits_any_terminal(width: int, also: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than asked, and every option keeps its reason."""
    monkeypatch.setenv("COLUMNS", str(width))
    made = CliRunner().invoke(main, ["plan", "qwen3-32b", "--users", "40", "--context", "8k", "--gpu", "l40s,h100,h200", *also])
    assert made.exit_code == 0 and made.exception is None
    assert all(len(line) <= width for line in made.stdout.splitlines())
    assert "chosen" in made.stdout
