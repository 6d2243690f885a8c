"""How long a start may take: weights over the storage's rate, then compiling and graph capture; never a constant."""

from __future__ import annotations

from math import ceil

from tonnage.render.plan_file import PlanFile
from tonnage.units import GIB

COMPILE_S = 180
"""Compiling and capturing graphs, an assumption; a warm cache takes a third."""
READ_GIB_PER_S = 0.5
"""Assumed where nobody measured: a network volume. A local NVMe reads 3 and more."""


def startup_s(made: PlanFile, read_gib_per_s: float = READ_GIB_PER_S) -> int:
    """Return the seconds that a start may take, in whole minutes: all cards' weights read from one store, twice over."""
    return start_period_s(made.weights_bytes * made.settings.parallel.cards, read_gib_per_s * GIB)


def start_period_s(weights_bytes: int, read_bytes_per_s: float) -> int:
    """Return the seconds to allow a start that reads so many bytes, in whole minutes.

    >>> start_period_s(131 * 2**30, 0.5 * 2**30)
    720
    """
    return ceil((2 * weights_bytes / read_bytes_per_s + COMPILE_S) / 60) * 60
