"""How many causes of the shared logs and pages are found, how many that are none, and are the figures right?"""
# ruff: noqa: E501 - messages and lines are quoted as they are written

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tonnage.cli import main


def cases(folder: Path) -> list[dict[str, Any]]:
    """Return the expectations of logs and metrics pages."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.expect.json"))]
    return [case for case in found if case["kind"] in ("log", "metrics")]


def diagnosed(folder: Path, case: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Return what the command says of a case in its context, as JSON."""
    context = tmp_path / "context.json"
    context.write_text(json.dumps(case["context"]))
    words = ["diagnose", str(folder / case["input"])]
    if "second_input" in case:
        words += [str(folder / case["second_input"]), "--seconds-between", str(case["seconds_between"])]
    result = CliRunner().invoke(main, [*words, "--context-file", str(context), "--json"], prog_name="tonnage", catch_exceptions=False)
    value: dict[str, Any] = json.loads(result.stdout)
    fine = {cause["id"] for cause in value["causes"]} <= {"healthy", "idle"}
    assert result.exit_code == int(not fine or bool(value["unread"])), case["id"]
    return value


def test_recall_and_precision_on_the_shared_cases(shared: Path, tmp_path: Path) -> None:
    """All that is expected is named; nothing is named that must not be, and clean ones are silent."""
    folder = shared / "data" / "lint"
    for case in cases(folder):
        found = {cause["id"] for cause in diagnosed(folder, case, tmp_path)["causes"]}
        assert set(case["expect"]) <= found, case["id"]
        assert not found & set(case["must_not"]), case["id"]
        if not case["expect"]:
            assert not found, case["id"]


def test_the_figures_of_the_cases(shared: Path, tmp_path: Path) -> None:
    """Each number that a case states, within its tolerance."""
    folder = shared / "data" / "lint"
    for case in cases(folder):
        numbers = diagnosed(folder, case, tmp_path)["numbers"]
        for name, wanted in case.get("numbers", {}).items():
            assert numbers[name] == pytest.approx(wanted["value"], abs=wanted["tolerance"] + 1e-9), (case["id"], name)


def test_evidence_points_at_lines_that_are_there(shared: Path, tmp_path: Path) -> None:
    """A cause quotes the file: its line holds the words."""
    folder = shared / "data" / "lint"
    for case in cases(folder):
        if case["kind"] == "log":
            lines = (folder / case["input"]).read_text().split("\n")
            for cause in diagnosed(folder, case, tmp_path)["causes"]:
                for said in cause["evidence"]:
                    assert said["text"][:40] in lines[said["line"] - 1], case["id"]


@pytest.mark.parametrize(
    ("name", "measured", "model", "causes"),
    [
        ("startup-log-cold-cpu.txt", {"pool_bytes": 2**30, "pool_tokens": 1_048_576, "concurrency": 512.0, "init_s": 52.83, "max_model_len": 2048},
         "models/tiny-llama", []),
        ("startup-log-eager-preempt.txt", {"pool_tokens": 2560, "concurrency": 1.25, "blocks": 80, "max_model_len": 2048}, "models/tiny-llama", []),
        ("startup-log-fail-blocksize16.txt", {"pool_tokens": 2560, "concurrency": 1.25, "blocks": 160}, "models/tiny-llama", ["block-size-unsupported"]),
        ("startup-log-fail-maxlen.txt", {"pool_bytes": 2**30, "blocks": 60, "max_model_len": 4096}, "models/tiny-qwen3", ["max-len-exceeds-cache"]),
    ],
)  # fmt: skip
def test_genuine_logs_are_read_value_by_value(
    shared: Path, tmp_path: Path, name: str, measured: dict[str, float], model: str, causes: list[str]
) -> None:
    """A real vLLM 0.32 on CPU: release, model, settings, pool, blocks, tokens, concurrency."""
    folder = shared / "data" / "engines" / "vllm-0.32-cpu"
    value = diagnosed(folder, {"id": name, "input": name, "context": {}}, tmp_path)
    assert (value["engine"], value["release"], value["model"]) == ("vllm", "0.32.0", model)
    assert {key: value["measured"][key] for key in measured} == measured
    assert value["settings"]["served_model_name"] == ["tiny"] and value["settings"]["tensor_parallel_size"] == 1
    assert [cause["id"] for cause in value["causes"]] == causes


def test_genuine_metrics_pages(shared: Path, tmp_path: Path) -> None:
    """The pages around a starved pool of the real server: preemptions, a full cache, and quiet afterwards."""
    folder = shared / "data" / "engines" / "vllm-0.32-cpu"
    case = {"id": "peak", "input": "metrics-before.txt", "second_input": "metrics-peak-preempt.txt", "seconds_between": 10, "context": {}}
    quiet = diagnosed(folder, {"id": "after", "input": "metrics-after-preempt.txt", "context": {}}, tmp_path)
    assert [cause["id"] for cause in quiet["causes"]] == ["idle"]
    busy = {cause["id"] for cause in diagnosed(folder, case, tmp_path)["causes"]}
    assert busy & {"preempting", "cache-bound", "engine-restarted"}
