"""How sure a number is, and where it comes from. Travels with every fact up to the page (contract: confidence)."""

from __future__ import annotations

from typing import Literal

import msgspec

Confidence = Literal["exact", "read", "measured", "extrapolated", "assumed"]
"""exact: arithmetic. read: from a file, a log or an engine. measured: inside what rows support.
extrapolated: a law outside its rows. assumed: neither."""

ORDER: tuple[Confidence, ...] = ("exact", "read", "measured", "extrapolated", "assumed")


class Banded(msgspec.Struct, frozen=True):
    """A number of bytes with its band: `low <= best <= high`, equal where it is exact."""

    best: int
    low: int
    high: int
    confidence: Confidence
    source: str = ""


def weakest(*confidences: Confidence) -> Confidence:
    """Return the least sure of several; a sum is only as sure as its weakest term.

    >>> weakest("exact", "assumed", "measured")
    'assumed'
    """
    return max(confidences, key=ORDER.index, default="exact")
