"""What a site has measured of its own cards: by how much a line of the overhead is off there, and how far its starts scatter."""

from __future__ import annotations

from typing import Literal

import msgspec

SiteLine = Literal["context, comms", "activations", "CUDA graphs", "overhead"]
"""The line of the ledger that is corrected; "overhead" where starts tell only what all lines take together."""


class Correction(msgspec.Struct, frozen=True):
    """One correction: where it holds (card by its slug, engine, release, ranks and stages of a replica), and by how many bytes.

    `spread` is half the width of what the starts behind it leave open; `starts` is how many there are.
    """

    card: str
    engine: str
    release: tuple[int, int]
    tp: int
    pp: int
    line: SiteLine
    bytes: int
    spread: int
    starts: int

    def holds(self, card: str, engine: str, release: tuple[int, int], tp: int, pp: int) -> bool:
        """Return whether it holds for a replica: the same card, engine, release and ranks."""
        return (self.card, self.engine, self.release, self.tp, self.pp) == (card, engine, release, tp, pp)
