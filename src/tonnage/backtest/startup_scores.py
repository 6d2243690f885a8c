"""Predicted starts against measured ones: errors by model first, since one model has ten rows and most have one.

pool error = predicted - measured, GiB      tokens error = |predicted / measured - 1|      inside: low <= measured <= high
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, median

import msgspec

from tonnage.backtest.startups import StartPrediction, release_in
from tonnage.units import GIB

ROUNDING = GIB // 200
"""Logs print hundredths of a GiB: a figure at the edge of the band is inside it."""


class Judged(msgspec.Struct, frozen=True):
    """One row: what it is, and how far off the prediction is; None where the source states nothing to compare with."""

    id: str
    model: str
    card: str
    release: str
    kind: str
    skipped: str = ""
    pool_error_gib: float | None = None
    tokens_error: float | None = None
    inside: bool | None = None
    half_width: float | None = None
    measured_pool_gib: float | None = None
    predicted_pool_gib: float | None = None
    confidence: str = ""


class StartScore(msgspec.Struct, frozen=True):
    """A group of rows: mean absolute pool error in GiB (by model), median tokens error (medians by model), band."""

    rows: int
    models: int
    skipped: int
    pool_error_gib: float | None
    pool_worst_gib: float | None
    tokens_error: float | None
    judged: int
    inside: int
    half_width: float | None


def number(row: Mapping[str, str], column: str) -> float | None:
    """Return a measured figure of a row; None where the source does not state one."""
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError):
        return None


def judge(row: Mapping[str, str], made: StartPrediction, kind: str) -> Judged:
    """Return how a prediction compares with the measured columns of its row."""
    release = ".".join(str(part) for part in release_in(row.get("version") or ""))
    held = Judged(row.get("id", ""), row.get("catalogue_model", ""), row.get("catalogue_card", ""), release, kind, made.skipped)
    if made.skipped or not made.pool_bytes:
        return held
    low, best, high = made.pool_low_bytes or 0, made.pool_bytes, made.pool_high_bytes or 0
    pool, tokens = number(row, "kv_mem_gib_per_gpu"), number(row, "kv_tokens")
    inside = None
    if pool is not None:
        inside = low - ROUNDING <= pool * GIB <= high + ROUNDING
    elif tokens and made.tokens:
        inside = low <= tokens / made.tokens * best <= high
    return msgspec.structs.replace(
        held,
        pool_error_gib=best / GIB - pool if pool is not None else None,
        tokens_error=abs((made.tokens or 0) / tokens - 1) if tokens else None,
        inside=inside,
        half_width=(high - low) / 2 / best if best > 0 else None,
        measured_pool_gib=pool,
        predicted_pool_gib=best / GIB,
        confidence=made.confidence,
    )


def score(rows: Iterable[Judged]) -> StartScore:
    """Return the score of a group of rows."""
    rows = list(rows)
    pools = by_model(((row.model, abs(row.pool_error_gib)) for row in rows if row.pool_error_gib is not None), fmean)
    tokens = by_model(((row.model, row.tokens_error) for row in rows if row.tokens_error is not None), median)
    widths = [row.half_width for row in rows if row.half_width is not None]
    judged = [row.inside for row in rows if row.inside is not None]
    return StartScore(
        len(rows),
        len({row.model for row in rows}),
        sum(bool(row.skipped) for row in rows),
        fmean(pools.values()) if pools else None,
        max((abs(row.pool_error_gib) for row in rows if row.pool_error_gib is not None), default=None),
        median(tokens.values()) if tokens else None,
        len(judged),
        sum(judged),
        median(widths) if widths else None,
    )


def by_model(pairs: Iterable[tuple[str, float]], of: Callable[[list[float]], float]) -> dict[str, float]:
    """Return one figure a model: of its rows' figures.

    >>> by_model([("a", 1.0), ("a", 3.0), ("b", 5.0)], fmean)
    {'a': 2.0, 'b': 5.0}
    """
    grouped: dict[str, list[float]] = {}
    for model, value in pairs:
        grouped.setdefault(model, []).append(value)
    return {model: of(values) for model, values in grouped.items()}


def groups(rows: Iterable[Judged]) -> dict[str, StartScore]:
    """Return the scores of all rows, then by kind of model, by release and by card."""
    rows = list(rows)
    found: dict[str, list[Judged]] = {"all": rows}
    for name in ("kind", "release", "card"):
        for row in sorted(rows, key=lambda row: _ordered(getattr(row, name))):
            found.setdefault(f"{name} {getattr(row, name)}", []).append(row)
    return {key: score(own) for key, own in found.items()}


def _ordered(text: str) -> tuple[list[int], str]:
    return ([int(part) for part in text.split(".")] if text.replace(".", "").isdigit() else [], text)
