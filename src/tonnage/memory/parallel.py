"""How the layers of a replica are dealt over pipeline stages."""

from __future__ import annotations

from tonnage.errors import InputError
from tonnage.settings import Parallelism

__all__ = ["Parallelism", "stages"]


def stages(layers: int, pp: int) -> tuple[int, ...]:
    """Return the layers of each pipeline stage, as vLLM deals them.

    A remainder goes one each to the stages before the last, counted backwards, so that the last has none.

    >>> stages(61, 4), stages(80, 4), stages(62, 4)
    ((15, 15, 16, 15), (20, 20, 20, 20), (15, 16, 16, 15))

    Raises InputError: more stages than layers.
    """
    if pp > layers:
        raise InputError(f"pipeline-parallel-size {pp} is more than the {layers} layers", hint=f"use at most {layers}")
    base, rest = divmod(layers, pp)
    counts = [base] * pp
    for index in range(2, rest + 2):
        counts[-index] += 1
    return tuple(counts)
