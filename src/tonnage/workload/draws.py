"""Seeded chance: when requests are sent, and how long they are. The same `Random` in the same state gives the same values.

Every function takes the generator it draws from, so that one seed gives one list of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, pi, sin
from typing import TYPE_CHECKING

from tonnage.errors import InputError

if TYPE_CHECKING:
    from random import Random

Z95, Z99 = 1.6448536, 2.3263479
"""Quantiles of the normal law."""


def constant(rate: float, count: int) -> list[float]:
    """Return times in seconds at equal gaps."""
    _known(rate, count)
    return [index / rate for index in range(count)]


def poisson(rate: float, count: int, draw: Random) -> list[float]:
    """Return the times of a Poisson process: gaps are exponential, with a mean of 1 / rate."""
    return gamma(rate, count, draw, 1.0)


def gamma(rate: float, count: int, draw: Random, burstiness: float) -> list[float]:
    """Return times whose gaps follow a gamma law; `burstiness` is the squared coefficient of variation of the gaps (1: Poisson)."""
    _known(rate, count)
    if not 0 < burstiness < 1e6:
        raise InputError(f"a burstiness of {burstiness:g} is none", hint="1 is Poisson, above it bursts")
    at, found = 0.0, []
    shape, scale = 1 / burstiness, burstiness / rate
    poisson_too = burstiness == 1.0
    for _ in range(count):
        at += draw.expovariate(rate) if poisson_too else draw.gammavariate(shape, scale)
        found.append(at)
    return found


def diurnal(rate: float, count: int, draw: Random, *, peak_ratio: float = 3.0, period_s: float = 86_400.0) -> list[float]:
    """Return times of a Poisson process whose rate follows a day: its mean is `rate`, its peak `peak_ratio` times its trough.

    By thinning: candidates at the peak's rate are kept with the share that the hour has of it.
    """
    _known(rate, count)
    if peak_ratio < 1:
        raise InputError(f"a peak of {peak_ratio:g} times the trough is none", hint="1 or more")
    swing = (peak_ratio - 1) / (peak_ratio + 1)
    top = rate * (1 + swing)
    at = 0.0
    found: list[float] = []
    while len(found) < count:
        at += draw.expovariate(top)
        if draw.random() * top <= rate * (1 + swing * sin(2 * pi * (at / period_s - 0.25))):
            found.append(at)
    return found


def recorded(times: Sequence[float], *, faster: float = 1.0) -> list[float]:
    """Return recorded times from 0 on, so many times as fast."""
    if not times or not 0 < faster < 1e6:
        raise InputError("there are no recorded times" if not times else f"{faster:g} times as fast is none")
    first = min(times)
    return [(at - first) / faster for at in sorted(times)]


def fixed(tokens: int, count: int) -> list[int]:
    """Return so many equal lengths."""
    return [max(1, tokens)] * count


def uniform(low: int, high: int, count: int, draw: Random) -> list[int]:
    """Return lengths of which each between two ends is as likely."""
    if not 1 <= low <= high:
        raise InputError(f"lengths of {low} to {high} tokens are none")
    return [draw.randint(low, high) for _ in range(count)]


def lognormal(p50: float, p95: float, count: int, draw: Random, *, most: int = 1 << 40) -> list[int]:
    """Return lengths whose logarithm is normal, by their median and 95th percentile; none above `most`."""
    if not 0 < p50 <= p95:
        raise InputError(f"a median of {p50:g} and a p95 of {p95:g} tokens are none")
    middle, width = log(p50), log(p95 / p50) / Z95
    return [max(1, min(most, round(exp(draw.gauss(middle, width))))) for _ in range(count)]


def empirical(values: Sequence[int], count: int, draw: Random) -> list[int]:
    """Return lengths drawn from those that were seen."""
    if not values:
        raise InputError("there are no lengths to draw from")
    return draw.choices(values, k=count)


def _known(rate: float, count: int) -> None:
    if not 0 < rate < 1e7 or count < 1:
        raise InputError(f"{count} requests at {rate:g}/s are none", hint="a rate above 0, and a request at least")
