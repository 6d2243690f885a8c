"""`plan --oracle ROW`: the engine's own figures in place of ours, or a sentence about why not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tonnage.cli import main
from tonnage.errors import InputError
from tonnage.memory.oracle_row import read_row

ASK = ["plan", "qwen3-8b", "--gpu", "h100", "--users", "8", "--context", "32768", "--json"]


def rows(shared: Path) -> list[bytes]:
    """The first rows of the shared data: Qwen3-8B on one card of 9.0."""
    with (shared / "data" / "allocator" / "allocator.jsonl").open("rb") as lines:
        return [next(lines) for _ in range(1)]


def test_the_engines_own_figures_stand_in_the_plan(shared: Path, tmp_path: Path) -> None:
    """Where they agree with ours, only the confidence changes; where they differ, they win."""
    (row,) = rows(shared)
    file = tmp_path / "row.jsonl"
    file.write_bytes(row)
    ours = msgspec.json.decode(CliRunner().invoke(main, ASK).stdout)
    theirs = msgspec.json.decode(CliRunner().invoke(main, [*ASK, "--oracle", str(file)]).stdout)
    assert theirs["users"]["admitted"] == ours["users"]["admitted"]
    assert theirs["pool"]["block_bytes"] == ours["pool"]["block_bytes"]
    assert theirs["ledger"][0]["confidence"] == "read"
    value = msgspec.json.decode(row)
    value["answers"]["bytes_per_block"] *= 2
    file.write_bytes(msgspec.json.encode(value))
    dearer = msgspec.json.decode(CliRunner().invoke(main, [*ASK, "--oracle", str(file)]).stdout)
    assert dearer["users"]["admitted"] == ours["users"]["admitted"] // 2
    assert sum(entry["bytes"] for entry in dearer["ledger"]) == dearer["card_bytes"]


def test_a_refusal_of_the_engine_is_a_refusal_of_the_plan(shared: Path, tmp_path: Path) -> None:
    """With the engine's words."""
    value = msgspec.json.decode(rows(shared)[0])
    value["answers"] = {"refused": True, "reason": "ValueError: no backend"}
    file = tmp_path / "row.jsonl"
    file.write_bytes(msgspec.json.encode(value))
    made = CliRunner().invoke(main, [*ASK, "--oracle", str(file)])
    assert made.exit_code == 1
    assert msgspec.json.decode(made.stdout)["refusals"][0]["reason"] == "ValueError: no backend"


def test_a_row_of_another_question_is_refused(shared: Path, tmp_path: Path) -> None:
    """TP 2 was not what the oracle was asked."""
    file = tmp_path / "row.jsonl"
    file.write_bytes(rows(shared)[0])
    made = CliRunner().invoke(main, [*ASK, "--count", "2", "--oracle", str(file)])
    assert made.exit_code == 2 and "the plan is for" in made.stdout


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"inputs": 1, "answers": 2}', b'{"inputs": {"engine": "vllm:0.33"}, "answers": {}}']
)
def test_what_is_no_row_is_said(data: bytes) -> None:
    """In one sentence."""
    with pytest.raises(InputError):
        read_row(data, "row.jsonl")
