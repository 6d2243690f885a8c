"""Rows, checked one by one, become the columns of a trace; what cannot be used is counted with its reason."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tonnage.errors import InputError
from tonnage.workload.trace import Skipped, Trace
from tonnage.workload.traces.clock import Clock, span_reader
from tonnage.workload.traces.fields import NEEDS, Field

FIRST = 5
"""Skipped rows that are kept by line."""
MOST_TOKENS = 100_000_000
BLOCKS = (512, 16, 32, 64, 128, 256, 1024, 2048)
"""Sizes of a block that hashes are known to be of, Mooncake's first."""


class Columns:
    """A trace in the making: a row costs its numbers, 8 bytes each, and nothing of its text."""

    def __init__(self, form: str, fields: Mapping[str, Field]) -> None:
        self.form = form
        self.fields = fields
        self.clock = Clock(fields["arrival"].unit if "arrival" in fields else "")
        self.end_clock = Clock(fields["end"].unit) if "end" in fields else None
        self.span = span_reader(fields["duration"].unit) if "duration" in fields else None
        self.arrival, self.end = array("d"), array("d")
        self.prompt, self.output, self.cached = array("q"), array("q"), array("q")
        self.block_ids, self.block_at = array("q"), array("q", [0])
        self.seen: dict[Hashable, int] = {}
        self.reasons: Counter[str] = Counter()
        self.first: list[tuple[int, str]] = []

    def add(self, line: int, row: Mapping[str, Any]) -> None:
        """Take a row: values by our names. One that cannot be is skipped and counted."""
        try:
            self._add(row)
        except ValueError as error:
            self.skip(line, str(error))

    def skip(self, line: int, reason: str) -> None:
        """Count a row that cannot be used."""
        self.reasons[reason] += 1
        if len(self.first) < FIRST:
            self.first.append((line, reason))

    def _add(self, row: Mapping[str, Any]) -> None:
        arrival, end = self._times(row)
        prompt = tokens(row.get("prompt"), "prompt", 1) if "prompt" in self.fields else 0
        output = tokens(row.get("output"), "output", 0) if "output" in self.fields else 0
        cached = row.get("cached")
        told = -1 if cached is None or cached == "" else min(tokens(cached, "cached", 0), prompt)
        if "hashes" in self.fields:
            self._hashes(row.get("hashes"))
        self.arrival.append(arrival)
        self.end.append(end)
        self.prompt.append(prompt)
        self.output.append(output)
        self.cached.append(told)

    def _times(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """Return when a request came and ended, NaN for an end that is not told.

        Raises ValueError: no time of arrival, or an end before it.
        """
        end = row.get("end")
        ended = math.nan if self.end_clock is None or end is None or end == "" else self.end_clock.seconds(end)
        took = row.get("duration")
        span = math.nan if self.span is None or took is None or took == "" else self.span(took)
        if "arrival" not in self.fields:
            arrival = ended - span
            if math.isnan(arrival):
                raise ValueError("it has no time")
        else:
            arrival = self.clock.seconds(row.get("arrival"))
            ended = ended if math.isnan(span) else arrival + span
        if ended < arrival:
            raise ValueError("it ends before it starts")
        return arrival, ended

    def _hashes(self, value: Any) -> None:
        if value is not None and not isinstance(value, list):
            raise ValueError("its block hashes are no list")
        seen = self.seen
        try:
            self.block_ids.extend([seen.setdefault(each, len(seen)) for each in value or ()])
        except TypeError:
            raise ValueError("its block hashes are no list of numbers or texts") from None
        self.block_at.append(len(self.block_ids))

    def trace(self, where: str, *, block_tokens: int = 0, dated: bool = True, remarks: Sequence[str] = ()) -> Trace:
        """Return the requests in the order they came; those of one moment stay in the order of the file.

        Raises InputError: nothing could be used, or its ends are on another clock than its arrivals.
        """
        skipped = Skipped(tuple(self.reasons.most_common()), tuple(self.first))
        if not self.arrival:
            reason = "; ".join(f"{count:,} x {why}" for why, count in skipped.reasons[:3])
            raise InputError(f"holds no request that can be read ({reason or 'it has no rows'})", where=where, hint=NEEDS)
        clock = self.clock if "arrival" in self.fields else self.end_clock
        if self.end_clock is not None and clock is not None and self.end_clock.kind and self.end_clock.dated != clock.dated:
            raise InputError("its arrivals and ends are on two clocks", where=where, hint="map a duration instead of the end")
        order: Sequence[int] = range(len(self.arrival))
        if any(later < earlier for earlier, later in pairwise(self.arrival)):
            order = sorted(order, key=self.arrival.__getitem__)
        start = self.arrival[order[0]]
        known = any(end == end for end in self.end)
        told = any(each >= 0 for each in self.cached)
        size = (block_tokens or self._block_tokens()) if self.seen and "prompt" in self.fields else 0
        ids, at = self._blocks(order) if size else (array("q"), array("q"))
        return Trace(
            self.form,
            array("d", [self.arrival[i] - start for i in order]),
            array("q", [self.prompt[i] for i in order]) if "prompt" in self.fields else (),
            array("q", [self.output[i] for i in order]) if "output" in self.fields else (),
            array("d", [self.end[i] - start for i in order]) if known else (),
            array("q", [self.cached[i] for i in order]) if told else (),
            ids, at, size, start if clock is not None and clock.dated else None, dated, skipped, tuple(remarks),
        )  # fmt: skip

    def _blocks(self, order: Sequence[int]) -> tuple[array[int], array[int]]:
        if isinstance(order, range):
            return self.block_ids, self.block_at
        ids, at = array("q"), array("q", [0])
        for i in order:
            ids.extend(self.block_ids[self.block_at[i] : self.block_at[i + 1]])
            at.append(len(ids))
        return ids, at

    def _block_tokens(self) -> int:
        """Return the tokens of a block: the size that explains most numbers of hashes from the lengths of their prompts."""
        rows = range(min(len(self.prompt), 1000))
        counts = [(self.block_at[i + 1] - self.block_at[i], self.prompt[i]) for i in rows]
        return max(BLOCKS, key=lambda size: sum(count in (prompt // size, -(-prompt // size)) for count, prompt in counts))


def tokens(value: Any, name: str, least: int) -> int:
    """Return a count of tokens, also one written as text.

    Raises ValueError: no whole number, or one that is out of range; the value itself is never repeated.
    """
    if value is None or value == "":
        raise ValueError(f"it has no {name} tokens")
    kind = type(value)
    try:
        count = int(value)
        if kind is not int and kind is not str and (kind is bool or count != value):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if kind is bool or not number.is_integer():
            raise ValueError(f"its {name} tokens are no whole number") from None
        count = int(number)
    if not least <= count <= MOST_TOKENS:
        raise ValueError(f"its {name} tokens are {'below' if count < least else 'above'} {least if count < least else MOST_TOKENS:,}")
    return count
