"""Does many steps at once give what one step at a time gives, and are blocks and requests conserved on the way?"""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest

from tonnage.sim.engine import Engine, EngineLimits
from tonnage.sim.serve import serve


class Steps:
    """Steps of a made-up card: affine in context, with a host that may be slower."""

    attention_per_pair = 0.0
    per_sequence = 0.0

    def __init__(self, most: int, host: float = 0.0) -> None:
        self.base = [self.work(count) for count in range(most + 2)]
        self.per_token = 2e-6
        self.host = [host] * (most + 2)
        self.hosted = host > 0
        self.known_work: dict[int, float] = {}

    def work(self, tokens: int) -> float:
        """Return the time of so many tokens."""
        return 0.006 + 1e-5 * tokens

    def host_of(self, sequences: int) -> float:
        """Return the engine's own time."""
        return self.host[0]

    def mixed(self, decoding: int, context: int, chunks: list[tuple[int, int]]) -> float:
        """Return the time of a step with chunks of prompts."""
        time = self.work(decoding + sum(count for count, _ in chunks)) + context * self.per_token
        return max(time, self.host[0]) if self.hosted else time


def simulated(seed: int, *, how: str, count: int = 60, in_flight: int = 0) -> Engine:
    """Return an engine that has done a random workload; event by event it is checked at every arrival."""
    draw = random.Random(seed)
    blocks, groups, fixed = draw.choice([60, 90, 400]), draw.choice([1, 1, 2]), draw.choice([0, 0, 3])
    limits = EngineLimits(blocks * groups, 16, 8, 256, 500, groups, fixed, seed % 3 != 0)
    at, arrivals, pieces = 0.0, [], []
    prompt, output = [draw.randint(1, 300) for _ in range(count)], [draw.choice([1, draw.randint(1, 120)]) for _ in range(count)]
    rate = draw.choice([3, 20])
    for tokens in prompt:
        at += draw.expovariate(rate)
        arrivals.append(at)
        shared = min(tokens, draw.choice([0, 50, 120]))
        more = tokens - shared > 20 and draw.random() < 0.5
        pieces.append((((draw.choice("ABC"), shared),) if shared else ()) + (((draw.randint(0, 5), 20),) if more else ()))
    times: Any = Steps(8, [0.0, 0.0075][seed % 2])
    engine = Engine(limits, times, one_by_one=how == "one by one")
    engine.load(prompt, output, pieces)
    if how == "in one loop":
        serve(engine, range(count), arrivals, in_flight)
    else:
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
    slow = simulated(seed, how="one by one")
    for how in ("event by event", "in one loop"):
        fast = simulated(seed, how=how)
        assert fast.finish_s == pytest.approx(slow.finish_s, abs=1e-9) and fast.first_s == pytest.approx(slow.first_s, abs=1e-9)
        assert fast.admitted_s == pytest.approx(slow.admitted_s, abs=1e-9)
        assert (fast.preemptions, fast.hit_tokens, fast.steps) == (slow.preemptions, slow.hit_tokens, slow.steps)
        assert (fast.decode_tokens, fast.prompt_tokens, fast.busy_s) == pytest.approx((slow.decode_tokens, slow.prompt_tokens, slow.busy_s))


def test_the_workloads_above_do_preempt() -> None:
    """Else the law above says less than it seems."""
    found = [simulated(seed, how="in one loop") for seed in range(60)]
    assert sum(engine.preemptions > 0 for engine in found) > 10 and sum(engine.hit_tokens > 0 for engine in found) > 20


@pytest.mark.parametrize("seed", range(12))
def test_a_closed_loop_keeps_so_many_in_flight(seed: int) -> None:
    """Each next request is sent when one finishes, and never more at once."""
    engine = simulated(seed, how="in one loop", in_flight=5)
    events = [(at, 1) for index, at in enumerate(engine.submitted_s) if index not in engine.rejected]
    events += [(at, 0) for at in engine.finish_s if at >= 0]
    level = 0
    for _, arrives in sorted(events):
        level += 1 if arrives else -1
        assert level <= 5
    assert engine.steps and engine.busy_s == pytest.approx(engine.now)


def test_by_priority_who_matters_more_goes_first_and_is_thrown_out_last() -> None:
    """Lower numbers first, as vLLM orders them; equal ones by arrival."""
    times: Any = Steps(2)
    engine = Engine(EngineLimits(400, 16, 2, 256, 500, by_priority=True), times)
    priority = [1, 1, 2, 0, 1, 0]
    engine.load([50] * 6, [20] * 6, priority=priority)
    serve(engine, range(6), [0.0] * 6)
    assert sorted(range(6), key=lambda index: (engine.admitted_s[index], index)) == [3, 5, 0, 1, 2, 4]  # 4 and 2 together
    starved = Engine(EngineLimits(24, 16, 3, 256, 500, by_priority=True), times)
    starved.load([100, 100, 100], [120, 120, 120], priority=[2, 0, 1])
    serve(starved, range(3), [0.0] * 3)
    assert starved.preemptions and starved.lost[1] == 0
