"""Does `tonnage simulate` answer, in the words of the contract, and refuse nonsense with what to do?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
POINT = {"load", "requests", "output_tokens_per_s", "ttft_s", "tpot_s", "itl_s", "e2e_s", "cache_share", "preemptions", "limit"}


@pytest.fixture
def plan(run: Run, tmp_path: Path) -> Path:
    """Return a plan that was kept."""
    path = tmp_path / "plan.json"
    assert run("plan", "qwen3-8b", "--gpu", "l40s", "--users", "16", "--context", "4k", "--out", path)[0] == 0
    return path


def simulated(run: Run, *words: object) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the value."""
    code, out, err = run("simulate", *words, "--json")
    assert out, err
    return code, json.loads(out)


def test_the_words_of_the_contract(run: Run, plan: Path) -> None:
    """Points, knee, largest within targets, band, what it took."""
    code, value = simulated(run, plan, "--users", "1..64", "--requests", "100", "--slo", "ttft:p95:2s", "--slo", "tpot:p95:100ms")
    assert code == 0 and {"points", "knee", "largest_within_targets", "band", "simulated_requests", "wall_s"} <= set(value)
    assert all(set(point) >= POINT for point in value["points"])
    assert set(value["knee"]) == {"load", "low", "high", "why"} and value["knee"]["low"] <= value["knee"]["load"] <= value["knee"]["high"]
    assert [point["load"] for point in value["points"]] == sorted(point["load"] for point in value["points"])
    for point in value["points"]:
        assert point["ttft_s"]["p50"] <= point["ttft_s"]["p95"] <= point["ttft_s"]["p99"] and point["finished"] == 100


def test_more_load_is_slower_and_more_replicas_hold_more(run: Run, plan: Path) -> None:
    """Latency grows with the rate; two replicas are as fast at twice the rate or faster."""
    _, one = simulated(run, plan, "--rate", "0.5,2,4")
    p95 = [point["e2e_s"]["p95"] for point in one["points"]]
    assert p95 == sorted(p95)
    _, two = simulated(run, plan, "--rate", "4", "--replicas", "2")
    assert two["points"][0]["ttft_s"]["p95"] <= 1.2 * one["points"][1]["ttft_s"]["p95"]


def test_the_same_seed_is_the_same_answer_side_by_side_or_not(run: Run, plan: Path) -> None:
    """With --jobs too."""
    words = (plan, "--rate", "1,2", "--requests", "100")
    first, again, apart = (simulated(run, *words, *more)[1]["points"] for more in ((), (), ("--jobs", "2")))
    assert first == again == apart != simulated(run, *words, "--seed", "2")[1]["points"]


def test_a_trace_is_replayed(run: Run, plan: Path, tmp_path: Path) -> None:
    """At its own times; what is too long is rejected, and said."""
    path = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:01:{second:02}.0,{tokens},20" for second, tokens in enumerate((100, 200, 90_000, 300))]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    code, out, _ = run("simulate", plan, "--trace", path)
    assert code == 0 and "Rejected: 1 request" in out and "as recorded" in out


def test_the_picture_and_the_screen(run: Run, plan: Path, tmp_path: Path) -> None:
    """A page that needs nothing else; a screen of the terminal's width."""
    code, out, _ = run("simulate", plan, "--users", "1..32", "--requests", "60", "--html", tmp_path / "x.html")
    assert code == 0 and "Knee: " in out and "reserves the longest sequence" in out
    page = (tmp_path / "x.html").read_text()
    assert page.startswith("<!doctype html>") and "<svg" in page and "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(("words", "said"), [
    (["--rate", "0"], "--rate"), (["--rate", "fast"], "is no load"), (["--rate", "1", "--users", "2"], "exclude"),
    (["--users", "2.5"], "is no load"), (["--slo", "speed:p95:1s"], "is no target"), (["--slo", "ttft:p95:soon"], "--slo"),
    (["--output", "9k"], "answer"), (["--trace", "nowhere.csv"], "no such file"), (["--burstiness", "-1", "--rate", "1"], "burstiness"),
    (["--faster", "0", "--trace", "plan.json"], ""), (["--think", "-1", "--users", "4"], ""),
])  # fmt: skip
def test_nonsense_is_refused(run: Run, plan: Path, words: list[str], said: str) -> None:
    """With exit code 2 and a sentence."""
    code, out, err = run("simulate", plan, *words)
    assert code == 2 and out == "" and said in err and "Traceback" not in err


def test_targets_that_nothing_meets_leave_with_1(run: Run, plan: Path) -> None:
    """And say by how much."""
    code, out, _ = run("simulate", plan, "--users", "1,2", "--requests", "20", "--slo", "tpot:p50:1ms")
    assert code == 1 and out.startswith("No load meets TPOT p50 0.001 s")


@pytest.mark.parametrize("words", [
    ["--rate", "1", "--think", "2"], ["--users", "4", "--burstiness", "2"], ["--users", "4", "--turns", "3", "--requests", "9"],
    ["--users", "4", "--html", "no/such/folder/x.html"], ["--users", "4", "--workload", "long.toml"],
])  # fmt: skip
def test_what_has_no_effect_is_refused(run: Run, plan: Path, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An option of another load, a folder that is not there, a workload longer than the plan's limit."""
    monkeypatch.chdir(tmp_path)
    Path("long.toml").write_text('context = "20k"\n')
    code, out, err = run("simulate", plan, *words)
    assert code == 2 and out == "" and err.startswith("error: ")


def test_data_parallel_ranks_are_engines_each(run: Run, tmp_path: Path) -> None:
    """Two ranks serve about twice as much; a narrow terminal gets a narrower table."""
    tokens = []
    for ranks in ("1", "2"):
        path = tmp_path / f"{ranks}.json"
        run("plan", "qwen3-8b", "--gpu", "h100", "--users", "16", "--context", "4k", "--dp", ranks, "--out", path)
        tokens.append(simulated(run, path, "--users", "256", "--requests", "600")[1]["points"][0]["output_tokens_per_s"])
    assert 1.6 < tokens[1] / tokens[0] < 2.2


def test_a_largest_load_that_nobody_looked_beyond_counts_no_replicas(run: Run, plan: Path) -> None:
    """It says that more may fit, and what to try."""
    code, out, _ = run("simulate", plan, "--users", "1,2", "--requests", "20", "--slo", "ttft:p95:60s")
    assert code == 0 and "perhaps more" in out and "--users 2..8" in out and "replicas of this" not in out
