"""The ledger of one card: lines that must sum to what CUDA reports. Every output prints these same lines."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

import msgspec

from tonnage.facts.provenance import Banded, Confidence, weakest


class Line(msgspec.Struct, frozen=True):
    """One line: what it is, its bytes with their band, how sure, and why in a sentence with the numbers put in."""

    label: str
    bytes: int
    low: int
    high: int
    confidence: Confidence
    why: str


class Pool(msgspec.Struct, frozen=True):
    """What is left for KV blocks on a card, with its band; blocks and tokens as the engine cuts and prints them."""

    bytes: int
    low_bytes: int
    high_bytes: int
    confidence: Confidence
    blocks: int = 0
    tokens: int = 0


def line(label: str, size: Banded, why: str) -> Line:
    """Return a line from a banded number."""
    return Line(label, size.best, size.low, size.high, size.confidence, why)


def exact(size: int, source: str = "") -> Banded:
    """Return a number without a band."""
    return Banded(size, size, size, "exact", source)


def pool_of(requested: Banded, charged: Iterable[Line]) -> Pool:
    """Return the pool: what is requested of the card less what is charged to it.

    The errors of the lines are independent, so the band is their root sum of squares on either side.
    """
    lines = list(charged)
    best = requested.best - sum(entry.bytes for entry in lines)
    below = isqrt((requested.best - requested.low) ** 2 + sum((entry.high - entry.bytes) ** 2 for entry in lines))
    above = isqrt((requested.high - requested.best) ** 2 + sum((entry.bytes - entry.low) ** 2 for entry in lines))
    return Pool(best, best - below, best + above, weakest(requested.confidence, *(entry.confidence for entry in lines)))
