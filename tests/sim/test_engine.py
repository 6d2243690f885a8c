"""Does many steps at once give what one step at a time gives, and are blocks and requests conserved on the way?"""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest

from tonnage.sim.engine import Engine, EngineLimits


class Steps:
    """Steps of a made-up card: affine in context, with a host that may be slower."""

    def __init__(self, most: int, host: float = 0.0) -> None:
        self.base = [0.006 + 1e-5 * count for count in range(most + 2)]
        self.per_token = 2e-6
        self.host = [host] * (most + 2)
        self.hosted = host > 0

    def mixed(self, decoding: int, context: int, chunks: list[tuple[int, int]]) -> float:
        """Return the time of a step with chunks of prompts."""
        time = self.base[min(decoding, len(self.base) - 1)] + context * self.per_token + sum(count for count, _ in chunks) * 2e-5
        return max(time, self.host[0]) if self.hosted else time


def simulated(seed: int, *, one_by_one: bool, count: int = 60) -> Engine:
    """Return an engine that has done a random workload, checked at every arrival."""
    draw = random.Random(seed)
    blocks, groups, fixed = draw.choice([60, 90, 400]), draw.choice([1, 1, 2]), draw.choice([0, 0, 3])
    limits = EngineLimits(blocks * groups, 16, 8, 256, 500, groups, fixed, seed % 3 != 0)
    at, arrivals, pieces = 0.0, [], []
    prompt, output = [draw.randint(1, 300) for _ in range(count)], [draw.randint(1, 120) for _ in range(count)]
    for tokens in prompt:
        at += draw.expovariate(20)
        arrivals.append(at)
        shared = min(tokens, draw.choice([0, 50, 120]))
        more = tokens - shared > 20 and draw.random() < 0.5
        pieces.append((((draw.choice("ABC"), shared),) if shared else ()) + (((draw.randint(0, 5), 20),) if more else ()))
    times: Any = Steps(8, [0.0, 0.0075][seed % 2])
    engine = Engine(limits, times, one_by_one=one_by_one)
    engine.load(prompt, output, pieces)
    for index, when in enumerate(arrivals):
        engine.advance(when)
        engine.submit(index, when)
        engine.check()
    engine.advance(inf)
    engine.check()
    assert len(engine.finished) + len(engine.rejected) == count and not engine.running and not engine.waiting
    return engine


@pytest.mark.parametrize("seed", range(60))
def test_many_steps_at_once_are_the_steps_one_by_one(seed: int) -> None:
    """First tokens and finishes to 1e-9 s, preemptions and hits to the last one; preemption, chunks, prefixes and state blocks."""
    fast, slow = simulated(seed, one_by_one=False), simulated(seed, one_by_one=True)
    assert fast.finish_s == pytest.approx(slow.finish_s, abs=1e-9) and fast.first_s == pytest.approx(slow.first_s, abs=1e-9)
    assert (fast.preemptions, fast.hit_tokens, fast.steps) == (slow.preemptions, slow.hit_tokens, slow.steps)


def test_the_workloads_above_do_preempt() -> None:
    """Else the law above says less than it seems."""
    found = [simulated(seed, one_by_one=False) for seed in range(60)]
    assert sum(engine.preemptions > 0 for engine in found) > 20 and sum(engine.hit_tokens > 0 for engine in found) > 20
