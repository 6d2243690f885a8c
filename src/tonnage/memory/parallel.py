"""How a replica is spread over cards: tensor, pipeline, expert and decode-context parallelism."""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError


class Parallelism(msgspec.Struct, frozen=True):
    """Sizes of the groups of one replica; `cards` of them hold it. `expert` spreads whole experts over tp x dp ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    expert: bool = False

    @property
    def cards(self) -> int:
        """Cards of one replica, data-parallel ranks included."""
        return self.tp * self.pp * self.dp

    @property
    def ep(self) -> int:
        """Ranks that share the experts; 1 where every rank holds a slice of each."""
        return self.tp * self.dp if self.expert else 1


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
