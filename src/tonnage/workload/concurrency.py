"""How many requests are in flight at once: swept from their ends where a log has them, else from a speed that is assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tonnage.workload.trace import Trace

WINDOW_S = 60.0


class Speed(msgspec.Struct, frozen=True):
    """How fast an answer is assumed to come: seconds to its first token, and for each token."""

    ttft_s: float = 0.5
    tpot_s: float = 0.02


class Concurrency(msgspec.Struct, frozen=True):
    """Requests in flight at the worst moment, and that moment, `at_s`.

    Those that wait in a queue count: on a server that was overloaded the peak is more than users would be on one that holds them.
    `confidence` is exact where every end is known; else assumed, and `low` and `high` are at twice and half the speed.
    `little` is Little's law over the busiest minute, rate times mean duration: below the peak where requests come in bursts.
    `assumed` counts the requests whose end was not known.
    """

    peak: int
    low: int
    high: int
    at_s: float
    confidence: str
    little: float
    assumed: int
    speed: Speed


def intervals(trace: Trace, speed: Speed, scale: float = 1.0) -> tuple[list[float], list[float]]:
    """Return starts and ends, in order of start; an unknown end is `ttft_s + output x tpot_s` after its start, times `scale`.

    A request holds its start: one that took no measurable time still counts at that moment. Requests with neither an end nor an
    output are left out.
    """
    first, each = scale * speed.ttft_s, scale * speed.tpot_s
    guessed = [start + first + each * output for start, output in zip(trace.arrival_s, trace.output_tokens, strict=False)]
    known = trace.end_s or guessed
    ends = [guess if end != end else end for end, guess in zip(known, guessed, strict=True)] if guessed and trace.end_s else list(known)
    pairs = [(start, end) for start, end in zip(trace.arrival_s, ends, strict=False) if end == end]
    return [start for start, _ in pairs], [end if end > start else math.nextafter(start, math.inf) for start, end in pairs]


def peak_of(starts: Sequence[float], ends: Sequence[float]) -> tuple[int, float]:
    """Return the most intervals that overlap, and the first moment at which they do; starts are in order.

    >>> peak_of([0.0, 1.0, 2.0], [2.0, 3.0, 4.0])
    (2, 1.0)
    """
    left, gone, most, at = sorted(ends), 0, 0, 0.0
    for count, start in enumerate(starts, 1):
        while left[gone] <= start:
            gone += 1
        if count - gone > most:
            most, at = count - gone, start
    return most, at


def busiest(arrival_s: Sequence[float], window_s: float) -> tuple[int, int]:
    """Return the first and the last but one index of the window with most arrivals; arrivals are in order.

    >>> busiest([0.0, 10.0, 10.5, 11.0, 30.0], 5.0)
    (1, 4)
    """
    best, first = (0, 0), 0
    for last, at in enumerate(arrival_s):
        while at - arrival_s[first] >= window_s:
            first += 1
        if last + 1 - first > best[1] - best[0]:
            best = first, last + 1
    return best


def concurrency(trace: Trace, speed: Speed) -> Concurrency | None:
    """Return how many requests are in flight at the worst moment; None where a log has neither ends nor outputs."""
    starts, ends = intervals(trace, speed)
    if not starts:
        return None
    unknown = sum(math.isnan(end) for end in trace.end_s) if trace.end_s else len(trace)
    assumed = unknown if trace.output_tokens else 0
    peak, at = peak_of(starts, ends)
    low = peak_of(*intervals(trace, speed, 0.5))[0] if assumed else peak
    high = peak_of(*intervals(trace, speed, 2.0))[0] if assumed else peak
    window = min(WINDOW_S, starts[-1]) or WINDOW_S
    first, last = busiest(starts, window)
    little = sum(ends[i] - starts[i] for i in range(first, last)) / window
    return Concurrency(peak, min(low, peak), max(high, peak), at, "assumed" if assumed else "exact", little, assumed, speed)


def over_time(starts: Sequence[float], ends: Sequence[float], bins: int, span_s: float) -> list[int]:
    """Return the most in flight in each of `bins` equal parts of `span_s`.

    >>> over_time([0.0, 1.0, 9.0], [8.0, 2.0, 10.0], 2, 10.0)
    [2, 1]
    """
    width = span_s / bins or 1.0
    most = [0] * bins
    events = sorted([(start, 1) for start in starts] + [(end, -1) for end in ends])
    level, current = 0, 0
    for at, step in events:
        place = min(int(at / width), bins - 1)
        for index in range(current + 1, place + 1):
            most[index] = level
        current = place
        level += step
        most[place] = max(most[place], level)
    return most
