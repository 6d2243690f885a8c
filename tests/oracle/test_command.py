"""Does `tonnage oracle` say what it fakes, and what is wrong, without an engine?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage.oracle import pretend

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a config.json."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    return tmp_path


def test_without_vllm_it_is_one_line_and_a_hint(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, nothing on stdout, no traceback."""
    for name in pretend.ENVIRONMENT:
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "vllm", None)
    code, stdout, stderr = run("oracle", folder)
    assert (code, stdout) == (2, "")
    assert stderr.splitlines()[0] == "error: vLLM is not installed in this environment"
    assert len(stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], "no model folder is given", id="no folder"),
        pytest.param(["nowhere"], "nowhere: has no config.json", id="no such folder"),
        pytest.param([".", "--capability", "sm90"], "--capability: 'sm90' is no compute capability", id="capability"),
        pytest.param([".", "--gpu-bytes", "24"], "", id="plain bytes are bytes"),
        pytest.param([".", "--gpu-bytes", "24 Gold"], "--gpu-bytes: size '24 Gold' has a unit we do not know", id="unit"),
        pytest.param([".", "--engine-arg", "x"], "--engine-arg: 'x' is not KEY=VALUE", id="engine argument"),
        pytest.param([".", "--out", "nowhere/rows.jsonl"], "nowhere/rows.jsonl: cannot be written", id="no such folder for the rows"),
        pytest.param([".", "--tp", "0"], "--tp: '0' is not between 1 and", id="none"),
    ],
)
def test_what_is_wrong_with_the_question_is_said_before_an_engine_is_looked_for(
    arguments: list[str], expected: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the option and the text as given."""
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "vllm", None)
    for name in pretend.ENVIRONMENT:
        monkeypatch.setenv(name, "")
    code, _, stderr = run("oracle", *arguments)
    assert code == 2
    assert stderr.startswith(f"error: {expected or 'vLLM is not installed'}")


def test_what_is_faked_is_every_step_that_is_taken(run: Run) -> None:
    """A name and a sentence each, from the functions themselves; no engine is needed to list them."""
    code, stdout, _ = run("oracle", "--what-is-faked", "--json")
    told = json.loads(stdout)
    assert (code, told["schema"]) == (0, "tonnage.oracle-faked/1")
    assert list(told["faked"])[: len(pretend.FAKED)] == [step.__name__.replace("_", " ") for step in pretend.FAKED]
    assert all(said.endswith(".") and len(said) > 40 for said in (*told["faked"].values(), *told["not_asked"].values()))
    code, text, _ = run("oracle", "--what-is-faked")
    assert code == 0
    assert [said for said in told["faked"].values() if said not in text] == []


def test_rows_of_two_commands_side_by_side_are_all_kept(tmp_path: Path) -> None:
    """Each is added in one write to the end of the file."""
    from concurrent.futures import ThreadPoolExecutor

    from tonnage.cli.oracle import _append

    lines = [f"{number:05}".encode() * 2_000 + b"\n" for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: _append(tmp_path / "rows.jsonl", line), lines))
    assert sorted((tmp_path / "rows.jsonl").read_bytes().splitlines(keepends=True)) == lines


def test_nothing_of_the_engine_is_imported_before_it_is_asked() -> None:
    """Neither the command nor the package loads vLLM or torch."""
    import importlib

    for module in ("tonnage.cli.oracle", "tonnage.oracle.pretend", "tonnage.oracle.ask", "tonnage.oracle.row", "tonnage.oracle.stubs"):
        importlib.import_module(module)
    assert {"vllm", "torch"} & set(sys.modules) == set()
