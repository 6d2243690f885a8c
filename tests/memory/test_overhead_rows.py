"""The overhead law against measured starts: how far off, how wide its band, and with every model left out in turn.

Rows of the shared data; predictions come from `backtest/startups.py`, which reads no measured column. Everything is
averaged by model first, since one model has ten rows and most have one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import fmean, median

import msgspec
import pytest

from tonnage.backtest.startups import Start, StartPrediction, predict_start, read_start
from tonnage.errors import UnknownError
from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants, overhead_constants
from tonnage.facts.shape import ModelShape
from tonnage.memory.activation import peak
from tonnage.memory.overhead import EngineLoad, overhead
from tonnage.units import GIB

Row = dict[str, str]
MEASURED = (
    "weights_gib_per_gpu", "activation_peak_gib", "non_torch_gib", "graph_gib", "kv_mem_gib_per_gpu", "gpu_blocks", "kv_tokens",
    "max_concurrency_x", "outcome", "note",
)  # fmt: skip
ROUNDING = 0.005 * GIB


@cache
def shape_of(name: str) -> ModelShape:
    """Return a model of the catalogue."""
    return find_model(name).shape


@cache
def card_of(name: str) -> Card:
    """Return a card of the catalogue."""
    return find_card(name).card


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[Row]:
    """The usable rows of both files, with `file` to tell them apart."""
    found = []
    for name in ("startups.csv", "startups-2.csv"):
        with (shared / "data" / "measured" / name).open(encoding="utf-8", newline="") as lines:
            found += [{**row, "file": name} for row in csv.DictReader(lines) if row["usable"] == "yes"]
    return found


def predict(row: Row, constants: OverheadConstants | None = None) -> StartPrediction:
    """Return the prediction of a row, with its measured columns taken away first."""
    asked = {name: value for name, value in row.items() if name not in MEASURED}
    made = predict_start(asked, shape_of, card_of, constants or overhead_constants())
    assert not made.skipped, made.skipped
    return made


def measured(row: Row, column: str) -> float | None:
    """Return a measured figure, None where the source did not state it."""
    try:
        return float(row[column])
    except ValueError:
        return None


def by_model(pairs: Iterable[tuple[Row, float]], of: Callable[[list[float]], float] = fmean) -> dict[str, float]:
    """Return one figure a model."""
    grouped: dict[str, list[float]] = {}
    for row, value in pairs:
        grouped.setdefault(row["catalogue_model"], []).append(value)
    return {model: of(values) for model, values in grouped.items()}


def pool_errors(rows: list[Row], constants: OverheadConstants | None = None) -> list[tuple[Row, float]]:
    """Return predicted less measured pool in GiB, where it was stated."""
    stated = [(row, pool) for row in rows if (pool := measured(row, "kv_mem_gib_per_gpu")) is not None]
    return [(row, (predict(row, constants).pool_bytes or 0) / GIB - pool) for row, pool in stated]


def token_errors(rows: list[Row]) -> list[tuple[Row, float]]:
    """Return the relative error of the printed tokens, as a share above 0."""
    stated = [(row, tokens) for row in rows if (tokens := measured(row, "kv_tokens"))]
    return [(row, abs((predict(row).tokens or 0) / tokens - 1)) for row, tokens in stated]


def exact_release(rows: list[Row]) -> list[Row]:
    """Return the starts of 0.19, whose log splits the memory to a hundredth of a GiB."""
    return [row for row in rows if row["version"].startswith("0.19")]


def test_the_pool_of_a_server_of_0_19_is_right_within_a_tenth_of_a_gib(rows: list[Row]) -> None:
    """Weights predicted too. A flat 2 GiB gives 1.12, the best other tool 1.33; asked for are 0.25."""
    errors = by_model((row, abs(error)) for row, error in pool_errors(exact_release(rows)))
    assert len(errors) >= 15
    assert fmean(errors.values()) <= 0.10


def test_the_tokens_of_a_server_of_0_19_are_right_within_one_per_cent(rows: list[Row]) -> None:
    """The median over models of what the engine prints."""
    assert median(by_model(token_errors(exact_release(rows)), median).values()) <= 0.01


def test_the_tokens_of_all_usable_rows_are_right_within_five_per_cent(rows: list[Row]) -> None:
    """Releases 0.15 to 0.30, cards from an L4 to a B300: the median over models."""
    assert median(by_model(token_errors(rows), median).values()) <= 0.05


def inside(row: Row, made: StartPrediction) -> bool | None:
    """Return whether the measured pool is in the band; where only tokens were printed, they stand for the pool."""
    low, best, high = made.pool_low_bytes or 0, made.pool_bytes or 1, made.pool_high_bytes or 0
    pool = measured(row, "kv_mem_gib_per_gpu")
    if pool is not None:
        return low - ROUNDING <= pool * GIB <= high + ROUNDING
    tokens = measured(row, "kv_tokens")
    if not tokens or not made.tokens:
        return None
    return low <= tokens / made.tokens * best <= high


def test_the_band_holds(rows: list[Row]) -> None:
    """Of all usable rows at least 85 in 100 lie inside; of those called measured nearly all."""
    judged = [(made, held) for row in rows if (held := inside(row, made := predict(row))) is not None]
    sure = [held for made, held in judged if made.confidence == "measured"]
    assert len(judged) >= 50
    assert sum(held for _, held in judged) >= 0.85 * len(judged)
    assert len(sure) >= 30 and sum(sure) >= 0.95 * len(sure)


def test_the_band_is_narrow_where_it_is_called_measured(rows: list[Row]) -> None:
    """The median half-width of the 0.19 rows is below one per cent of the pool; elsewhere it may be a tenth."""
    widths = []
    for row in rows:
        made = predict(row)
        half = ((made.pool_high_bytes or 0) - (made.pool_low_bytes or 0)) / 2 / (made.pool_bytes or 1)
        widths.append((row["version"].startswith("0.19"), half))
    assert median(half for recent, half in widths if recent) <= 0.01
    assert median(half for recent, half in widths if not recent) <= 0.15


def load_of(start: Start, stage: int = 0) -> EngineLoad:
    """Return the load that a row describes."""
    settings, card = start.settings, start.card
    return EngineLoad(
        start.shape, settings.parallel, settings.release, card.compute_capability, card.link, settings.max_num_seqs or 1,
        settings.max_num_batched_tokens or 1, start.dtype, settings.enforce_eager, stage=stage,
    )  # fmt: skip


def starts(rows: list[Row]) -> list[tuple[Row, EngineLoad]]:
    """Return the starts whose source splits the memory: H100, 0.15 to 0.19."""
    split = [row for row in rows if row["file"] == "startups.csv" and measured(row, "activation_peak_gib") is not None]
    return [(row, load_of(read_start(row, shape_of, card_of))) for row in split]


def test_the_split_of_the_memory_is_right_term_by_term(rows: list[Row]) -> None:
    """Activation within 0.08 GiB on every start, context within 0.03 but for one model that has 0.21 more."""
    off = []
    for row, load in starts(rows):
        terms = {term.label: term.size.best / GIB for term in overhead(load, overhead_constants())}
        assert terms["activations"] == pytest.approx(measured(row, "activation_peak_gib"), abs=0.08), row["id"]
        off.append((row, abs(terms["context, comms"] - (measured(row, "non_torch_gib") or 0.0))))
    assert len(off) >= 35
    assert {row["catalogue_model"] for row, error in off if error > 0.03} <= {"ibm-granite/granite-3.3-8b-instruct"}


def without(model: str, rows: list[Row]) -> OverheadConstants:
    """Return the constants as the rows of all other models give them: context, collectives, stages, bytes a logit."""
    c = overhead_constants()
    rest = [(row, load) for row, load in starts(rows) if row["catalogue_model"] != model]
    recent = [(row, load) for row, load in rest if load.release >= (0, 18)]
    alone = [measured(row, "non_torch_gib") or 0.0 for row, load in recent if load.parallel.cards == 1]
    staged = [measured(row, "non_torch_gib") or 0.0 for row, load in recent if load.parallel.pp > 1]
    law = c.context
    law = msgspec.structs.replace(law, alone={**law.alone, "0.18": int(median(alone) * GIB)})
    law = msgspec.structs.replace(law, staged=int(median(staged) * GIB) if staged else law.staged)
    links = []
    for row, load in recent:
        if load.parallel.tp > 1:
            peers = (load.parallel.tp - 1) * (law.peer + law.peer_layer * len(load.layers))
            links.append((measured(row, "non_torch_gib") or 0.0) * GIB - law.alone["0.18"] - peers)
    law = msgspec.structs.replace(law, link={**law.link, "nvlink": int(median(links))})
    logits = []
    for row, load in rest:
        found = peak(load, c)
        if load.release >= (0, 17) and found.cause == "sampler":
            short = (measured(row, "activation_peak_gib") or 0.0) * GIB - found.bytes
            logits.append(14 + short / (load.shape.vocab_size * load.max_num_seqs))
    assert round(median(logits)) == 14  # what the code says, found again from the rows of the others
    return msgspec.structs.replace(c, context=law)


def test_a_model_that_the_law_has_not_seen_is_no_worse(rows: list[Row]) -> None:
    """Leave one model out, take the constants from the others, predict it: the same error within a hundredth of a GiB."""
    recent = exact_release(rows)
    seen = by_model((row, abs(error)) for row, error in pool_errors(recent))
    unseen = {}
    for model in seen:
        own = [row for row in recent if row["catalogue_model"] == model]
        unseen[model] = fmean(abs(error) for _, error in pool_errors(own, without(model, rows)))
    print(*(f"{model}: {seen[model]:.3f} seen, {unseen[model]:.3f} unseen" for model in sorted(seen)), sep="\n")
    assert fmean(unseen.values()) <= 0.10
    assert fmean(unseen.values()) <= fmean(seen.values()) + 0.01


def test_predictions_read_no_measured_column(rows: list[Row]) -> None:
    """Nor the note: a row with its answers says the same as the row without."""
    for row in rows:
        assert predict_start(row, shape_of, card_of, overhead_constants()) == predict(row)


def test_a_row_that_names_nothing_we_know_is_skipped_with_a_reason() -> None:
    """One line a row, also for those; no model, no card, another engine, a limit that is none."""
    base = {"id": "X1", "catalogue_model": "Qwen/Qwen3-8B", "catalogue_card": "L4", "version": "0.19.0"}
    for change, reason in (
        ({"catalogue_model": ""}, "no catalogue_model"),
        ({"catalogue_card": "abacus"}, "no card is named"),
        ({"engine": "sglang"}, "engine 'sglang' is not known"),
        ({"gpu_memory_utilization": "most"}, "malformed"),
        ({"max_num_seqs": "0"}, ""),
    ):
        made = predict_start({**base, **change}, shape_of, card_of, overhead_constants())
        assert made.id == "X1"
        assert reason in made.skipped if reason else made.pool_bytes
    with pytest.raises(UnknownError):
        read_start({"id": "X2"}, shape_of, card_of)


def test_without_an_allocator_only_bytes_are_predicted() -> None:
    """The hook is optional."""
    row = {"id": "X3", "catalogue_model": "Qwen/Qwen3-8B", "catalogue_card": "A10G", "version": "0.30.0", "max_model_len": "8192"}
    made = predict_start(row, shape_of, card_of, overhead_constants(), admit=None)
    assert made.pool_bytes and made.tokens is None and made.max_concurrency is None
    assert "tokens" not in msgspec.to_builtins(made)
