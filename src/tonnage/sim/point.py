"""What was served -> one point of a curve: latencies, throughput, cache, preemptions, and what limits it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import Literal

import msgspec

from tonnage.sim.cluster import Served
from tonnage.sim.engine import BINS_PER_E, Engine

Limit = Literal["cache", "compute", "bandwidth", "host", "queue", "none"]
WAITS = 0.1
"""Share of the time of a request in the queue from which the queue is what limits."""
MOMENTS = 120
FULL = 0.9
"""Share of the pool in use from which a queue is the cache's."""


class Spread(msgspec.Struct, frozen=True):
    """Mean and percentiles, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


NOTHING = Spread(0.0, 0.0, 0.0, 0.0)


class Sample(msgspec.Struct, frozen=True):
    """A moment of the first replica: seconds, the share of the pool in use, who runs, who waits, preemptions so far."""

    at_s: float
    cache_share: float
    running: int
    waiting: int
    preemptions: int


class Point(msgspec.Struct, frozen=True):
    """One load and what came of it. Times in seconds, rates a second; `cache_share` is the most of the pool that was in use.

    TTFT counts from when a request is sent, TPOT is (last - first token) / (tokens - 1), ITL are the gaps between tokens of all
    requests, from a histogram of bins 2 % wide, in which steps taken
    together count by their mean, no more than 4 % apart. `requests_per_s` and tokens count over the whole run. `wasted_share` is the part
    of     the pool that a server reserving the longest sequence for each would leave idle.
    """

    load: float
    requests: int
    finished: int
    rejected: int
    seconds: float
    requests_per_s: float
    output_tokens_per_s: float
    ttft_s: Spread
    tpot_s: Spread
    itl_s: Spread
    e2e_s: Spread
    queue_s: Spread
    cache_share: float
    preemptions: int
    hit_share: float
    running: float
    goodput_per_s: float
    wasted_share: float
    limit: Limit
    limit_why: str
    timeline: tuple[Sample, ...] = ()


def spread(values: Sequence[float]) -> Spread:
    """Return mean and percentiles (nearest rank) of values; zeros of none.

    >>> spread([float(each) for each in range(1, 101)]).p95
    95.0
    """
    if not values:
        return NOTHING
    ordered = sorted(values)
    count = len(ordered)

    def at(share: float) -> float:
        return ordered[min(count - 1, max(0, -int(-share * count // 1) - 1))]

    return Spread(sum(ordered) / count, at(0.50), at(0.95), at(0.99))


def of_gaps(gaps: Iterable[dict[int, int]]) -> Spread:
    """Return mean and percentiles of gaps between tokens, from histograms over logarithmic bins: each value within 2 %."""
    whole: dict[int, int] = {}
    for one in gaps:
        for key, count in one.items():
            whole[key] = whole.get(key, 0) + count
    total = sum(whole.values())
    if not total:
        return NOTHING
    keys = sorted(whole)
    found, level = [], 0
    wanted = [0.50 * total, 0.95 * total, 0.99 * total]
    for key in keys:
        level += whole[key]
        while wanted and level >= wanted[0]:
            found.append(_middle(key))
            wanted.pop(0)
    return Spread(sum(_middle(key) * count for key, count in whole.items()) / total, *found)


def _middle(key: int) -> float:
    """Return the middle of a bin; the logarithm of a second or less was cut towards zero."""
    return exp((key - 0.5) / BINS_PER_E) if key <= 0 else exp((key + 0.5) / BINS_PER_E)


class Target(msgspec.Struct, frozen=True):
    """What is good enough: a quantity (ttft, tpot, itl, e2e), a percentile or mean, and seconds."""

    quantity: str
    statistic: str
    seconds: float

    def met(self, point: Point) -> bool:
        """Return whether a point is good enough; one that rejected or left requests is not."""
        found: float = getattr(getattr(point, f"{self.quantity}_s"), self.statistic)
        return found <= self.seconds and point.finished > 0


def point(served: Served, load: float, targets: Sequence[Target] = ()) -> Point:
    """Return what a run comes to."""
    requests, engines = served.requests, served.engines
    prompts, outputs = requests.prompt_tokens, requests.output_tokens
    ttft: list[float] = []
    tpot: list[float] = []
    e2e: list[float] = []
    queue: list[float] = []
    good = tokens = held = 0
    first_sent, last_done = 1e99, 0.0
    sent = served.sent_s
    for engine in engines:
        first, last, admitted, ended = engine.first_s, engine.finish_s, engine.admitted_s, engine.finished
        if not ended:
            continue
        ttft += [first[index] - sent[index] for index in ended]
        e2e += [last[index] - sent[index] for index in ended]
        queue += [admitted[index] - sent[index] for index in ended]
        tpot += [(last[index] - first[index]) / (outputs[index] - 1) for index in ended if outputs[index] > 1]
        out = sum([outputs[index] for index in ended])
        tokens += out
        held += out + sum([prompts[index] for index in ended])
        first_sent = min(first_sent, min([sent[index] for index in ended]))
        last_done = max(last_done, max([last[index] for index in ended]))
        good += _good(engine, sent, targets)
    finished = len(e2e)
    seconds = max(1e-12, last_done - first_sent) if finished else 0.0
    rate = finished / seconds if seconds else 0.0
    whole_queue = spread(queue)
    most = engines[0].limits
    used = max(_most_used(engine) for engine in engines)
    longest = most.groups * -(-most.max_model_len // most.block_tokens) + most.fixed_blocks
    mean_blocks = most.groups * (held / finished / most.block_tokens) + most.fixed_blocks if finished else 0.0
    steps = sum(engine.steps for engine in engines)
    running = sum(engine.decode_tokens for engine in engines) / max(1, steps)
    looked = sum(engine.looked_tokens for engine in engines)
    e2e_spread = spread(e2e)
    share = whole_queue.mean / e2e_spread.mean if e2e_spread.mean else 0.0
    preemptions = sum(engine.preemptions for engine in engines)
    cache = min(1.0, used / max(1, most.blocks))
    limit, why = _limit(served, share, cache, preemptions, running)
    return Point(
        load, len(requests), finished, sum(len(engine.rejected) for engine in engines), seconds, rate, tokens / seconds if seconds else 0.0,
        spread(ttft), spread(tpot), of_gaps(engine.gaps for engine in engines), e2e_spread, whole_queue, cache, preemptions,
        sum(engine.hit_tokens for engine in engines) / looked if looked else 0.0, running, good / seconds if seconds else 0.0,
        max(0.0, 1 - mean_blocks / longest) if longest else 0.0, limit, why, _timeline(engines[0]),
    )  # fmt: skip


def _most_used(engine: Engine) -> float:
    """Return the most blocks that were in use: as sampled, or by the tokens that were held with half a block more for each sequence."""
    limits = engine.limits
    held = engine.most_tokens / limits.block_tokens + limits.groups * engine.most_decoding / 2 if engine.most_tokens else 0.0
    return max(held, max((sample[1] for sample in engine.timeline), default=0))


def _timeline(engine: Engine) -> tuple[Sample, ...]:
    """Return at most so many moments of an engine as a picture shows."""
    samples, blocks = engine.timeline, max(1, engine.limits.blocks)
    kept = samples[:: max(1, len(samples) // MOMENTS)]
    return tuple(Sample(at, used / blocks, running, waiting, lost) for at, used, running, waiting, lost in kept)


def _good(engine: Engine, sent: Sequence[float], targets: Sequence[Target]) -> int:
    """Return how many requests met every target that speaks of one request."""
    limits: dict[str, float] = {}
    for target in targets:  # of several targets of one quantity the strictest
        limits[target.quantity] = min(target.seconds, limits.get(target.quantity, 1e99))
    if not limits:
        return len(engine.finished)
    wait, each, whole = (limits.get(name, 1e99) for name in ("ttft", "tpot", "e2e"))
    first, last, output = engine.first_s, engine.finish_s, engine.output
    return sum(
        first[index] - sent[index] <= wait
        and (last[index] - first[index]) <= each * (output[index] - 1) + 1e-12
        and last[index] - sent[index] <= whole
        for index in engine.finished
    )


def _limit(served: Served, share: float, cache: float, preemptions: int, running: float) -> tuple[Limit, str]:
    """Return what limits, and why that is said: what requests wait for, else what a step is made of."""
    engines = served.engines
    limits, model = engines[0].limits, getattr(engines[0].times, "model", None)
    if preemptions or (share > WAITS and cache >= FULL):
        lost = f"{preemptions:,} preemptions" if preemptions else f"{share:.0%} of a request's time is the queue"
        return "cache", f"the pool is {cache:.0%} full at its fullest, {lost}"
    if share > WAITS and running > 0.8 * limits.max_num_seqs:
        return (
            "queue",
            f"{share:.0%} of a request's time is the queue, at max-num-seqs {limits.max_num_seqs} with {1 - cache:.0%} of the pool free",
        )
    if model is None or not any(engine.steps for engine in engines):
        return "none", ""
    steps = max(1, sum(engine.steps for engine in engines))
    busy = sum(engine.busy_s for engine in engines)
    prompts = sum(engine.prompt_tokens for engine in engines) / steps
    mean_step = busy / steps
    host = model.host_s(max(1, round(running)))
    batch = max(1, round(running + prompts))
    memory, compute = model.memory_s(batch), model.compute_s(batch)
    if host > 0.5 * mean_step:
        return "host", f"the engine's own {host * 1000:.1f} ms are {host / mean_step:.0%} of a step"
    if compute >= memory:
        return "compute", f"{batch:,} tokens a step: multiplying takes longer than reading the weights"
    return "bandwidth", f"{batch:,} tokens a step: reading weights and cache is what a step is made of"
