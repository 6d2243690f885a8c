"""Weights per rank against the parameters and buffers of vLLM's own model code: the rows of ../shared/data/allocator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tonnage.backtest.allocator import settings_of
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import parse_engine, rules_for
from tonnage.facts.shape import ModelShape
from tonnage.memory.budget import weight_rules
from tonnage.memory.weights import WeightRules, rank_weights

WITHIN = 0.005

KNOWN = {
    "moonshotai--Kimi-K3": "at TP 8 and 16 the 12 heads of its tower do not divide, and the engine keeps the tower whole: 0.34 and 0.54 %",
}


@pytest.fixture(scope="module")
def errors(shared: Path) -> list[tuple[str, str, float]]:
    """(model, row, relative error) of every accepted row; weights that follow from the same inputs are added up once."""
    configs = shared / "data/allocator/configs"

    @cache
    def load(name: str) -> ModelShape:
        return find_model(str(configs / f"{name}.json")).shape

    @cache
    def weighed(name: str, arguments: str, rules: WeightRules) -> int:
        settings, dtype = settings_of(json.loads(arguments), (0, 33))
        return rank_weights(load(name), settings.parallel, dtype=dtype, vision=not settings.language_model_only, rules=rules).total

    @cache
    def rules_of(engine: str, capability: str) -> WeightRules:
        major, minor = capability.split(".")
        return weight_rules(rules_for(*parse_engine(engine)), (int(major), int(minor)))

    def rows() -> Iterator[dict[str, Any]]:
        with (shared / "data/allocator/allocator.jsonl").open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    decides = (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
        "dtype",
        "language_model_only",
    )
    out = []
    for row in rows():
        held = (row["answers"].get("weights_per_rank") or {}).get("param_and_buffer_bytes")
        if held:
            inputs = row["inputs"]
            arguments = json.dumps({key: value for key, value in inputs["args"].items() if key in decides}, sort_keys=True)
            ours = weighed(inputs["model"], arguments, rules_of(inputs["engine"], inputs["capability"]))
            out.append((inputs["model"], row["id"], ours / held - 1))
    return out


def test_weights_are_within_half_a_per_cent_on_99_of_100_rows(errors: list[tuple[str, str, float]]) -> None:
    """Issue 2 asks for 95 % of the accepted rows; it is 99.9 %."""
    near = sum(abs(error) <= WITHIN for _, _, error in errors)
    assert len(errors) > 2_600
    assert near / len(errors) >= 0.99


def test_every_row_that_is_further_off_is_of_a_model_that_is_explained(errors: list[tuple[str, str, float]]) -> None:
    """A new row outside half a per cent must be looked at, not averaged away."""
    far = {model for model, _, error in errors if abs(error) > WITHIN}
    assert far <= set(KNOWN)


def test_no_model_is_further_off_than_one_per_cent(errors: list[tuple[str, str, float]]) -> None:
    """The worst row of all, and the bias of all rows together."""
    assert max(abs(error) for _, _, error in errors) < 0.01
    assert abs(sum(error for _, _, error in errors) / len(errors)) < 0.001
