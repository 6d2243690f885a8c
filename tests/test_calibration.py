"""Does what a site measured come back as the plan's own lines, measured, and only where it holds?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.calibration import Calibration, calibration_text, read_calibration
from tonnage.errors import InputError
from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.overheads import overhead_constants
from tonnage.facts.site import Correction, SiteLine
from tonnage.fit import fit_overhead
from tonnage.units import GIB

Run = Callable[..., tuple[int, str, str]]
ROW = {
    "id": "a", "version": "0.29.0", "tp": "1", "pp": "1", "dp": "1", "max_model_len": "8192", "gpu_memory_utilization": "0.9",
    "max_num_seqs": "64", "max_num_batched_tokens": "8192", "weights_gib_per_gpu": "8.79", "catalogue_model": "Qwen/Qwen3-8B-FP8",
    "catalogue_card": "l40s",
}  # fmt: skip

corrections = st.builds(
    Correction, st.sampled_from(["h100-sxm", "l4"]), st.just("vllm"), st.tuples(st.just(0), st.integers(6, 40)), st.integers(1, 8),
    st.integers(1, 4), st.sampled_from(get_args(SiteLine)), st.integers(-(2**40), 2**40), st.integers(0, 2**40), st.integers(1, 99),
)  # fmt: skip


@given(st.lists(corrections, max_size=4))
def test_a_calibration_is_read_as_it_was_written(found: list[Correction]) -> None:
    """parse(print(x)) == x."""
    made = Calibration("2026-11-29", 3, "sha256:ab", tuple(found))
    assert read_calibration(calibration_text(made), "f") == made


@pytest.mark.parametrize(
    "text", ["", "schema = 1", 'schema = "tonnage.calibration/2"', 'schema = "tonnage.calibration/1"\noverhead = 3', "[["]
)
def test_what_is_no_calibration_is_refused(text: str) -> None:
    """Cut, older, later, or another file."""
    with pytest.raises(InputError):
        read_calibration(text, "f")


def fitted(*rows: dict[str, str]) -> tuple[Correction, ...]:
    """Return the corrections of rows."""
    return fit_overhead(rows, lambda name: find_model(name).shape, lambda name: find_card(name).card, overhead_constants()).corrections


def test_one_start_tells_where_but_not_how_far_others_scatter() -> None:
    """Half of what it corrects is its band."""
    (one,) = fitted({**ROW, "kv_mem_gib_per_gpu": "28.0"})
    assert (one.card, one.release, one.line, one.starts) == ("l40s", (0, 29), "overhead", 1)
    assert one.spread == pytest.approx(abs(one.bytes) / 2, abs=1)


def test_starts_that_split_the_overhead_correct_each_line() -> None:
    """Activation and non-torch as measured, graphs as what remains."""
    row = {**ROW, "kv_mem_gib_per_gpu": "28.0", "activation_peak_gib": "1.50", "non_torch_gib": "0.40"}
    found = {one.line: one for one in fitted(row, {**row, "id": "b", "activation_peak_gib": "1.60", "kv_mem_gib_per_gpu": "27.9"})}
    assert set(found) == {"activations", "context, comms", "CUDA graphs"}
    assert found["activations"].starts == 2 and found["activations"].spread == pytest.approx(0.05 * GIB, abs=2)


def test_rows_that_tell_nothing_are_refused_by_what_is_missing() -> None:
    """The name of the column."""
    with pytest.raises(InputError, match="kv_mem_gib_per_gpu"):
        fitted(ROW)


def test_a_fitted_plan_meets_the_pool_that_was_measured(run: Run, tmp_path: Path) -> None:
    """From a log to rows to a calibration to a plan: the pool within its band, its lines measured; elsewhere nothing changes."""
    rows, site = tmp_path / "rows.csv", tmp_path / "site.toml"
    fields = {**ROW, "kv_mem_gib_per_gpu": "28.0"}
    rows.write_text(",".join(fields) + "\n" + ",".join(fields.values()) + "\n")
    assert run("fit", "overhead", rows, "--out", site)[0] == 0
    words = ["plan", "qwen3-8b-fp8", "--gpu", "l40s", "--users", "4", "--context", "8k", "--utilization", "0.9", "--max-num-seqs", "64",
             "--max-num-batched-tokens", "8192", "--engine", "vllm:0.29", "--json"]  # fmt: skip
    before, after = (json.loads(run(*words, *more)[1]) for more in ((), ("--calibration", site)))
    weights = next(line["bytes"] for line in after["ledger"] if line["label"] == "weights")
    assert after["pool"]["bytes"] + weights == pytest.approx((28.0 + 8.79) * GIB, abs=2)
    assert after["pool"]["confidence"] != before["pool"]["confidence"] == "extrapolated"
    assert sum(line["bytes"] for line in after["ledger"]) == after["card_bytes"]
    other = [*words[:3], "l4", *words[4:]]
    assert run(*other)[1] == run(*other, "--calibration", site)[1]


def test_the_default_place_is_read_and_can_be_left_out(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TONNAGE_CALIBRATION names it; --no-calibration does without; a broken one is one error."""
    site = tmp_path / "c.toml"
    monkeypatch.setenv("TONNAGE_CALIBRATION", str(site))
    words = ["plan", "qwen3-8b-fp8", "--gpu", "l40s", "--users", "4", "--context", "8k", "--engine", "vllm:0.29", "--json"]
    plain = run(*words)[1]
    correction = Correction("l40s", "vllm", (0, 29), 1, 1, "overhead", GIB, GIB // 8, 2)
    site.write_text(calibration_text(Calibration("2026-11-29", 2, "sha256:0", (correction,))))
    moved = run(*words)[1]
    assert json.loads(moved)["pool"]["bytes"] == json.loads(plain)["pool"]["bytes"] - GIB
    assert run(*words, "--no-calibration")[1] == plain
    site.write_text("schema = ")
    code, out, _ = run(*words)
    assert code == 2 and "is no TOML" in out
