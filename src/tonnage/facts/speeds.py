"""What share of its data sheet a card reaches under an engine, and what the engine itself costs a step: data/speeds.toml."""

from __future__ import annotations

from functools import lru_cache
from math import log

import msgspec

from tonnage.facts.gpu import Card
from tonnage.facts.overheads import at_release
from tonnage.facts.provenance import Confidence
from tonnage.facts.tables import table

POINTS = (256, 1024, 4096)
"""Tokens at which the shares of the dense rate were measured; between them they go with the logarithm."""
FP8_SCALE = 0.8
"""What FP8 matrices reach of the share that 16-bit ones do, where no card's own figure is known."""
ATTENTION_COMPUTE = 0.5
KERNEL_FLOOR_S = 1.5e-6


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shares of one card: of its bandwidth with weights, of its dense rate at three sizes, of its bandwidth with the cache."""

    gemm: float
    mfu: tuple[float, float, float]
    attention: float


class Speeds(msgspec.Struct, frozen=True):
    """Everything of a step that is no fact of card or model: shares reached, floors, the engine's own time."""

    gemm_bandwidth_share: float
    compute_shares: tuple[float, float, float]
    attention_bandwidth_share: float
    attention_compute_share: float
    kernel_floor_s: float
    host: tuple[float, float, float]
    latency: dict[str, tuple[float, float, float]]
    confidence: Confidence

    def gemm_compute_share(self, tokens: int) -> float:
        """Return the share of the dense rate that matrices of so many tokens reach.

        >>> speeds = Speeds(0.8, (0.6, 0.8, 0.9), 0.8, 0.5, 0.0, (0, 0, 0), {}, "measured")
        >>> speeds.gemm_compute_share(256), speeds.gemm_compute_share(8192), round(speeds.gemm_compute_share(512), 2)
        (0.6, 0.9, 0.7)
        """
        if tokens <= POINTS[0]:
            return self.compute_shares[0]
        for (low, left), (high, right) in zip(
            zip(POINTS, self.compute_shares, strict=True), zip(POINTS[1:], self.compute_shares[1:], strict=True), strict=False
        ):
            if tokens <= high:
                return left + (right - left) * log(tokens / low) / log(high / low)
        return self.compute_shares[-1]

    def link_latency(self, ranks: int, link: str) -> float:
        """Return the seconds of one all-reduce before any byte moves."""
        if ranks <= 1:
            return 0.0
        row = self.latency.get(link, self.latency["other"])
        return row[0] if ranks <= 2 else (row[1] if ranks <= 4 else row[2])


@lru_cache(maxsize=128)
def _table() -> dict[str, dict[str, Reached]]:
    known = table("speeds")
    return {name: {key: msgspec.convert(value, Reached) for key, value in known[name].items()} for name in ("cards", "arch", "fp8")}


def efficiency(card: Card, engine: str, release: tuple[int, int], *, fp8: bool = False) -> Speeds:
    """Return what a card reaches under an engine's release; `fp8` for matrices that are multiplied in FP8.

    >>> from tonnage.facts.cards import find_card
    >>> efficiency(find_card("h100").card, "vllm", (0, 33)).gemm_bandwidth_share
    0.8
    """
    shares, known = _table(), table("speeds")
    own = shares["cards"].get(card.slug)
    found = own or shares["arch"].get(card.arch.lower().split()[0] if card.arch else "", shares["arch"]["other"])
    if fp8:
        narrow = shares["fp8"].get(card.slug)
        found = narrow or Reached(found.gemm * FP8_SCALE, tuple(share * FP8_SCALE for share in found.mfu), found.attention)  # type: ignore[arg-type]
    host = at_release(known["host"], release if engine == "vllm" else (0, 33))
    latency = {link: tuple(values) for link, values in known["latency"].items()}
    return Speeds(
        found.gemm, found.mfu, found.attention, ATTENTION_COMPUTE, KERNEL_FLOOR_S, tuple(host), latency,
        "measured" if own else "extrapolated",
    )  # fmt: skip
