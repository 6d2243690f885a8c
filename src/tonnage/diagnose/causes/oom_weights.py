"""The weights do not fit the card: memory ran out while they were loaded."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case
from tonnage.units import gib

ID = "oom-weights"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    weights, capacity = case.weights_on_card, sign.number("capacity")
    have = f"{capacity:g} GiB" if capacity else (f"{gib(case.card.memory.best)} GiB" if case.card is not None else "the card")
    if weights is None:
        return Told(
            f"memory ran out while weights were loaded onto {have}",
            "more tensor parallelism, a narrower checkpoint (FP8, AWQ) or a larger card; utilization does not help while weights load",
        )
    ranks = f" at tensor-parallel-size {case.asked.parallel.tp}" if case.asked is not None and case.asked.parallel.tp > 1 else ""
    return Told(
        f"{case.model.name if case.model else 'the model'} puts {gib(weights)} GiB of weights on a card{ranks}, which has {have}",
        f"{_ways(case)}; utilization does not help while weights load",
        {"weights_gib_per_card": round(weights / 2**30, 2)},
    )


def _ways(case: Case) -> str:
    from tonnage.lint.rules.weights_unfit import _fix

    return _fix(case) if case.settings is not None else "more tensor parallelism, or a narrower checkpoint"
