"""The allocator against vLLM's own, run on a meta device: 2,695 rows of 15 releases, ../shared/data/allocator.

Bytes of a block, blocks, concurrency and printed tokens must be exact, and refusals the engine's; tables by kind of model,
capability and release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tonnage.backtest import allocator as backtest
from tonnage.backtest.allocator import Score, compare, kind_of, predict
from tonnage.facts.catalog import find_model
from tonnage.facts.shape import ModelShape
from tonnage.memory.weights import Weights, rank_weights

KNOWN = {
    "deepseek-ai--DeepSeek-V4-Flash": "before 0.28 its concurrency weighs each group by the first page of the group",
    "moonshotai--Kimi-K3": "weights alone, at TP 16: see test_weights_rows.py",
}


class Tally:
    """Scores by kind, capability and release, and the rows that differ."""

    def __init__(self) -> None:
        self.scores: dict[str, Score] = {}
        self.differing: dict[str, str] = {}
        self.models: dict[str, str] = {}

    def add(self, row: dict[str, Any], load: Any) -> None:
        """Predict one row and add it under its kind, capability and release."""
        inputs = row["inputs"]
        prediction = predict(row, load)
        keys = ("all", f"kind {kind_of(load(inputs['model']))}", f"capability {inputs['capability'][0]}", f"release {inputs['engine']}")
        differs = [compare(prediction, row["answers"], self.scores.setdefault(key, Score())) for key in keys]
        if differs[0]:
            self.differing[row["id"]] = differs[0]
            self.models[row["id"]] = inputs["model"]


@pytest.fixture(scope="module")
def tally(shared: Path) -> Iterator[Tally]:
    """All rows, predicted once; weights, which depend on fewer inputs than a row has, are added up once for each."""
    configs = shared / "data/allocator/configs"

    @cache
    def load(name: str) -> ModelShape:
        return find_model(str(configs / f"{name}.json")).shape

    weighed: dict[str, Weights] = {}

    def remembered(shape: ModelShape, *arguments: Any, **named: Any) -> Weights:
        key = f"{id(shape)} {arguments} {named}"
        if key not in weighed:
            weighed[key] = rank_weights(shape, *arguments, **named)
        return weighed[key]

    made = Tally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backtest, "rank_weights", remembered)
        with (shared / "data/allocator/allocator.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                made.add(json.loads(line), load)
    yield made


def test_every_row_is_judged(tally: Tally) -> None:
    """No row is skipped: no argument, model or release among them is unknown to us."""
    assert tally.scores["all"].rows == 2_695
    assert tally.scores["all"].skipped == 0


def test_blocks_and_concurrency_are_exact_on_99_of_100_rows(tally: Tally) -> None:
    """Issue 3 asks for 97 % of the accepted rows."""
    assert tally.scores["all"].exact / tally.scores["all"].rows >= 0.99


def test_each_kind_capability_and_release_is_exact_on_95_of_100_rows(tally: Tally) -> None:
    """Issue 3: plain, sliding, MLA, state, mixed; capability 8 and 9; each release from 0.19.1 to 0.33.0."""
    assert {"kind plain", "kind sliding", "kind MLA", "kind state", "kind mixed", "capability 8", "capability 9"} <= set(tally.scores)
    assert sum(key.startswith("release") for key in tally.scores) == 15
    low = {key: score.exact / score.rows for key, score in tally.scores.items() if score.exact / score.rows < 0.95}
    assert low == {}


def test_every_refusal_of_the_engine_is_ours(tally: Tally) -> None:
    """Issue 3 asks for 90 %; all 45 are right, and nothing that the engine accepts is refused."""
    assert (tally.scores["all"].refusals, tally.scores["all"].refusals_right) == (45, 45)
    assert [words for words in tally.differing.values() if words.startswith("refused")] == []


def test_what_differs_is_explained(tally: Tally) -> None:
    """A row that newly differs must be looked at, not averaged away."""
    assert {tally.models[row] for row in tally.differing} <= set(KNOWN)


def test_weights_of_the_rows_are_within_half_a_per_cent(tally: Tally) -> None:
    """The same rows, scored as `tonnage backtest allocator` does."""
    assert tally.scores["all"].weights / tally.scores["all"].rows >= 0.99
