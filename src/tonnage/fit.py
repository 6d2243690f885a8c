"""Rows of measured starts -> a calibration: by how much each line of the overhead is off on this site, with what it leaves open.

    overhead measured = budget - weights measured - pool measured        correction = that - what the law says

The median over the starts of one card, release and arrangement; half the scatter, and never less than a floor, is the band.
One start tells where, but not how far others scatter: its band is half of what it corrects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median

import msgspec

from tonnage.backtest.startups import StartPrediction, predict_start, read_start
from tonnage.errors import InputError, TonnageError
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants
from tonnage.facts.shape import ModelShape
from tonnage.facts.site import Correction, SiteLine
from tonnage.units import GIB, MIB

FLOOR = 32 * MIB
"""The least half-width of a band: what prints of two decimals of a GiB, and cuBLAS, leave open."""
PARTS: dict[SiteLine, str] = {"context, comms": "non_torch_gib", "activations": "activation_peak_gib"}

Key = tuple[str, str, tuple[int, int], int, int]


class Residual(msgspec.Struct, frozen=True):
    """What one row says of one line: bytes measured beyond the law."""

    row: str
    key: Key
    line: SiteLine
    bytes: int


class Fitted(msgspec.Struct, frozen=True):
    """The corrections, the residuals behind them, and the rows that say nothing, each with the reason."""

    corrections: tuple[Correction, ...]
    residuals: tuple[Residual, ...]
    skipped: tuple[tuple[str, str], ...]


def fit_overhead(
    rows: Iterable[Mapping[str, str]], load: Callable[[str], ModelShape], card: Callable[[str], Card], constants: OverheadConstants
) -> Fitted:
    """Return what rows of measured starts tell of the overhead.

    Raises InputError: no row tells anything; names what is missing.
    """
    residuals: list[Residual] = []
    skipped: list[tuple[str, str]] = []
    for row in rows:
        name = row.get("id", "")
        try:
            residuals += _residuals(row, load, card, constants)
        except TonnageError as error:
            skipped.append((name, str(error)))
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            skipped.append((name, f"the row is malformed ({error!r})"))
    if not residuals:
        why = skipped[0][1] if skipped else "there are none"
        raise InputError(f"the overhead cannot be told from these rows: {why}", hint="a row needs model, card and kv_mem_gib_per_gpu")
    groups: dict[tuple[Key, SiteLine], list[int]] = {}
    for one in residuals:
        groups.setdefault((one.key, one.line), []).append(one.bytes)
    return Fitted(tuple(_correction(key, line, found) for (key, line), found in sorted(groups.items())), tuple(residuals), tuple(skipped))


def _residuals(
    row: Mapping[str, str], load: Callable[[str], ModelShape], card: Callable[[str], Card], constants: OverheadConstants
) -> list[Residual]:
    pool = _gib(row, "kv_mem_gib_per_gpu")
    if pool is None:
        raise InputError("kv_mem_gib_per_gpu is empty")
    if not any(character.isdigit() for character in row.get("version", "")):
        raise InputError("version names no release", hint="the law differs from release to release")
    start = read_start(row, load, card)
    said: StartPrediction = predict_start(row, load, card, constants, None)
    if said.skipped or said.weights_bytes is None or said.pool_bytes is None:
        raise InputError(said.skipped or "nothing is predicted for it")
    weights = _gib(row, "weights_gib_per_gpu") or said.weights_bytes
    parallel = start.settings.parallel
    key: Key = (start.card.slug, "vllm", start.settings.release, parallel.tp, parallel.pp)
    beyond = said.weights_bytes + said.pool_bytes - weights - pool
    terms = {term.label: term.bytes for term in said.terms}
    parts = {line: measured - terms.get(line, 0) for line, field in PARTS.items() if (measured := _gib(row, field)) is not None}
    if len(parts) < len(PARTS):
        return [Residual(row.get("id", ""), key, "overhead", beyond)]
    found = [Residual(row.get("id", ""), key, line, off) for line, off in parts.items()]
    if "CUDA graphs" in terms:
        found.append(Residual(row.get("id", ""), key, "CUDA graphs", beyond - sum(parts.values())))
    return found


def _gib(row: Mapping[str, str], field: str) -> int | None:
    text = (row.get(field) or "").strip()
    return round(float(text) * GIB) if text else None


def _correction(key: Key, line: SiteLine, found: list[int]) -> Correction:
    best = int(median(found))
    scatter = max(abs(one - best) for one in found) if len(found) > 1 else abs(best) // 2
    return Correction(*key, line, best, max(FLOOR, scatter), len(found))
