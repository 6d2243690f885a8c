"""Loads -> points, the knee, and the largest load within targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tonnage.sim.point import Point, Target

FLAT = 0.03
"""How near the best power a point is to count as the knee's neighbour: the curve is flat there."""
REFINE = 6
"""Halvings of the interval that holds the largest load within targets."""


class Knee(msgspec.Struct, frozen=True):
    """Where more load buys mostly waiting: the load, the interval in which it may be, and why."""

    load: float
    low: float
    high: float
    why: str


def loads(low: float, high: float, count: int = 10, *, whole: bool = False) -> list[float]:
    """Return loads in equal ratios from one to another.

    >>> loads(1, 8, 4, whole=True)
    [1.0, 2.0, 4.0, 8.0]
    """
    if low == high or count < 2:
        return [float(low)]
    found = [low * (high / low) ** (index / (count - 1)) for index in range(count)]
    return sorted({float(max(1, round(each))) for each in found}) if whole else [float(f"{each:.4g}") for each in found]


def knee(points: Sequence[Point]) -> Knee | None:
    """Return where throughput over latency is largest (Kleinrock's power); None of fewer than three points.

    The interval takes the neighbours, and all points whose power is within 3 % of the best: there the curve tells no more.
    """
    known = [point for point in points if point.finished]
    if len(known) < 3:
        return None
    power = [point.requests_per_s / max(1e-12, point.e2e_s.mean) for point in known]
    best = max(range(len(known)), key=power.__getitem__)
    near = [index for index, each in enumerate(power) if each >= (1 - FLAT) * power[best]]
    low, high = known[max(0, min(near) - 1)], known[min(len(known) - 1, max(near) + 1)]
    if best == len(known) - 1:
        return Knee(known[best].load, low.load, high.load, "throughput still grows faster than latency at the largest load: try more")
    after = known[best + 1]
    slower = after.e2e_s.mean / max(1e-12, known[best].e2e_s.mean) - 1
    more = after.output_tokens_per_s / max(1e-12, known[best].output_tokens_per_s) - 1
    what = after.limit_why or after.limit
    return Knee(known[best].load, low.load, high.load, f"at {after.load:g} requests take {slower:+.0%} and tokens are {more:+.0%}: {what}")


def largest_within(
    points: Sequence[Point], targets: Sequence[Target], measure: Callable[[float], Point], *, whole: bool = False
) -> Iterator[Point]:
    """Yield the points that narrow the largest load which meets all targets; the last met one among all is the answer.

    It is sought between the largest load that meets them and the next one.
    """
    ordered = sorted(points, key=lambda point: point.load)
    good = [point.load for point in ordered if met(point, targets)]
    low = max(good, default=0.0)
    bad = [point.load for point in ordered if point.load > low]
    if not bad:
        return
    high = min(bad)
    for _ in range(REFINE):
        middle = (low + high) / 2 if low else high / 2
        middle = float(round(middle)) if whole else float(f"{middle:.4g}")
        if middle <= low or middle >= high or middle <= 0:
            return
        found = measure(middle)
        yield found
        if met(found, targets):
            low = middle
        else:
            high = middle


def met(point: Point, targets: Sequence[Target]) -> bool:
    """Return whether a point meets all targets, and nobody was turned away."""
    return point.finished > 0 and not point.rejected and all(target.met(point) for target in targets)
