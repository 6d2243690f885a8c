"""A trace -> what a plan needs to know of its users, with what the log is too short or too coarse to tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tonnage.units import counted
from tonnage.workload.concurrency import WINDOW_S, Concurrency, Speed, busiest, concurrency, intervals
from tonnage.workload.prefixes import LADDER, Prefixes, prefixes
from tonnage.workload.trace import Skipped, Trace

FEW = 1_000
"""Below so many requests fewer than ten stand above the p99."""
ASSUMED = Speed()
DAY_S, HOUR_S = 86_400.0, 3_600.0


class Lengths(msgspec.Struct, frozen=True):
    """Tokens: the mean, and the least length that 50, 95 and 99 of 100 requests do not exceed; `longest` is the longest seen."""

    mean: float
    p50: int
    p95: int
    p99: int
    longest: int


class Rate(msgspec.Struct, frozen=True):
    """Requests a second: over the whole log, and over its busiest `window_s` (any minute, not only whole ones), from `at_s`."""

    mean_per_s: float
    peak_per_s: float
    window_s: float
    at_s: float


class Profile(msgspec.Struct, frozen=True):
    """What a log says of its traffic; None where it does not carry what that needs.

    `burstiness` is the squared coefficient of variation of the gaps between arrivals: 0 for a clock, 1 for independent users
    (Poisson), above where they come in bursts. `by_hour` counts requests by hour of the day, UTC or as the log writes it;
    `hour_per_s` is their rate over what the log covers of that hour, whatever the days it begins and ends on.
    `reported_hit_share` is the share of prompt tokens that the server itself said it found in its cache.
    """

    format: str
    requests: int
    span_s: float
    epoch_s: float | None
    dated: bool
    rate: Rate
    concurrency: Concurrency | None
    prompt_tokens: Lengths | None
    output_tokens: Lengths | None
    total_tokens: Lengths | None
    burstiness: float | None
    by_hour: tuple[int, ...]
    hour_per_s: tuple[float, ...]
    prefix: Prefixes | None
    reported_hit_share: float | None
    skipped: Skipped
    lacks: tuple[str, ...]
    remarks: tuple[str, ...]


def profile(trace: Trace, *, speed: Speed = ASSUMED, cache_tokens: Sequence[int] = LADDER) -> Profile:
    """Return the profile of a trace; where it tells no ends, answers are assumed to come at `speed`."""
    span = trace.arrival_s[-1]
    window = min(WINDOW_S, span) or WINDOW_S
    first, last = busiest(trace.arrival_s, window)
    starts, ends = intervals(trace, speed)
    both = (
        [a + b for a, b in zip(trace.prompt_tokens, trace.output_tokens, strict=True)]
        if trace.prompt_tokens and trace.output_tokens
        else []
    )
    found = concurrency(trace, speed)
    mean = len(trace) / span if span else 0.0
    rate = Rate(mean, max(mean, (last - first) / window) if span else 0.0, window, trace.arrival_s[first])
    hours = by_hour(trace)
    seen = covered_s(trace.epoch_s % DAY_S, span) if trace.epoch_s is not None else []
    per_s = tuple(count / max(covered, WINDOW_S) for count, covered in zip(hours, seen, strict=True))
    shares = prefixes(trace, starts, ends, cache_tokens)
    return Profile(
        trace.format, len(trace), span, trace.epoch_s, trace.dated, rate, found,
        lengths(trace.prompt_tokens), lengths(trace.output_tokens), lengths(both), burstiness(trace.arrival_s), hours, per_s, shares,
        _reported(trace), trace.skipped, _lacks(trace, found), (*trace.remarks, *_remarks(trace, found)),
    )  # fmt: skip


def lengths(values: Sequence[int]) -> Lengths | None:
    """Return the lengths by nearest rank; None where there are none.

    >>> lengths(range(1, 101))
    Lengths(mean=50.5, p50=50, p95=95, p99=99, longest=100)
    """
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 95, 99))
    return Lengths(sum(ordered) / len(ordered), p50, p95, p99, ordered[-1])


def burstiness(arrival_s: Sequence[float]) -> float | None:
    """Return variance over squared mean of the gaps; None for fewer than two gaps, or none above 0.

    >>> burstiness([0.0, 1.0, 2.0, 3.0]), burstiness([0.0, 0.0, 2.0])
    (0.0, 1.0)
    """
    gaps = [later - earlier for earlier, later in pairwise(arrival_s)]
    mean = math.fsum(gaps) / len(gaps) if gaps else 0.0
    if len(gaps) < 2 or mean <= 0:
        return None
    return math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2


def by_hour(trace: Trace) -> tuple[int, ...]:
    """Return the requests of each hour of the day, over all days; empty where only relative times are known."""
    if trace.epoch_s is None:
        return ()
    hours = [0] * 24
    for at in trace.arrival_s:
        hours[int((trace.epoch_s + at) % DAY_S // HOUR_S) % 24] += 1
    return tuple(hours)


def covered_s(from_s: float, span_s: float) -> list[float]:
    """Return how long a log that begins `from_s` after a midnight covers each hour of the day.

    >>> covered_s(23.5 * 3600, 86_400 + 3600)[22:], covered_s(23.5 * 3600, 86_400 + 3600)[:2]
    ([3600.0, 5400.0], [5400.0, 3600.0])
    """
    days, rest = divmod(span_s, DAY_S)
    pieces = [(hour % 24, max(0.0, min(from_s + rest, (hour + 1) * HOUR_S) - max(from_s, hour * HOUR_S))) for hour in range(48)]
    return [days * HOUR_S + sum(piece for place, piece in pieces if place == hour) for hour in range(24)]


def _reported(trace: Trace) -> float | None:
    told = [(cached, prompt) for cached, prompt in zip(trace.cached_tokens, trace.prompt_tokens, strict=False) if cached >= 0]
    return sum(cached for cached, _ in told) / sum(prompt for _, prompt in told) if told else None


def _lacks(trace: Trace, found: Concurrency | None) -> tuple[str, ...]:
    """Return what the log does not carry, and what cannot be said for want of it."""
    missing = (
        (not trace.prompt_tokens, "prompt lengths: no context for a plan"),
        (not trace.output_tokens, "answer lengths: no length of a whole sequence"),
        (found is None, "ends, durations or answer lengths: no peak of requests at once"),
        (trace.epoch_s is None, "dates: no time of day"),
        (not trace.block_tokens and not trace.cached_tokens, "block hashes or cached tokens: nothing on shared prefixes"),
    )
    return tuple(text for lacks, text in missing if lacks)


def _remarks(trace: Trace, found: Concurrency | None) -> list[str]:
    """Return where the log is too short or too coarse for what is said of it."""
    out, count, span = [], len(trace), trace.arrival_s[-1]
    if trace.prompt_tokens and count < FEW:
        above = count - math.ceil(0.99 * count)
        out.append(f"too short for a p99: it rests on {counted(above + 1, 'request')}; {FEW:,} requests are the least that say something")
    if span < DAY_S:
        out.append("it covers less than a day: whether the busiest hour is in it cannot be told")
    stamps = len(set(trace.arrival_s))
    if count >= 20 and stamps < count / 2:
        out.append(f"its times are coarse ({stamps:,} different ones of {count:,}): burstiness says more of the clock than of the users")
    if found is not None and 0 < found.assumed < count:
        out.append(f"{counted(found.assumed, 'request')} of {count:,} tell no end; theirs is assumed")
    rows = count + trace.skipped.count
    if trace.skipped.count > 0.05 * rows:
        out.append(f"{trace.skipped.count:,} of {rows:,} rows could not be read: what is said is said of the others")
    return out
