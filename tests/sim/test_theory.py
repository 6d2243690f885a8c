"""Does the engine queue as queueing theory says, and its cache find again what an independent count finds?"""

from __future__ import annotations

from collections import OrderedDict
from math import log, sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tonnage.sim.engine import Engine, EngineLimits
from tonnage.sim.serve import serve
from tonnage.workload.draws import poisson
from tonnage.workload.trace import Trace
from tonnage.workload.traces.read import read_trace
from tonnage.workload.traffic import of_trace

STEP_S = 0.01


class Constant:
    """Steps of one length, whatever is in them."""

    attention_per_pair = 0.0
    per_token = 0.0
    per_sequence = 0.0
    hosted = False

    def __init__(self, most: int) -> None:
        self.base = [STEP_S] * (most + 2)
        self.host = [0.0] * (most + 2)
        self.known_work: dict[int, float] = {}

    def work(self, tokens: int) -> float:
        """Return the time of a step."""
        return STEP_S

    def host_of(self, sequences: int) -> float:
        """Return nothing: the engine's own time is in the step."""
        return 0.0

    def mixed(self, decoding: int, context: int, chunks: list[tuple[int, int]]) -> float:
        """Return the time of a step."""
        return STEP_S


def one_slot(outputs: list[int], rate: float, seed: int) -> list[float]:
    """Return how long each request waited for the only slot."""
    count = len(outputs)
    times: Any = Constant(1)
    engine = Engine(EngineLimits(10_000, 16, 1, 8192, 100_000), times)
    engine.load([1] * count, outputs)
    serve(engine, range(count), poisson(rate, count, Random(seed)))
    return [engine.admitted_s[index] - engine.submitted_s[index] for index in range(count)]


@pytest.mark.parametrize("law", ["constant", "geometric"])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(law: str, load: float) -> None:
    """M/D/1 with constant answers, M/M/1 in steps with geometric ones: W = rate E[S^2] / (2 (1 - load)), within 3.5 standard errors."""
    mean = 20
    means = []
    share = 1 / mean
    for seed in range(20):
        draw = Random(1000 + seed)
        outputs = [mean if law == "constant" else 1 + int(log(1 - draw.random()) / log(1 - share)) for _ in range(5000)]
        waits = one_slot(outputs, load / (mean * STEP_S), seed)
        means.append(sum(waits[500:]) / len(waits[500:]))
    second = (mean**2 if law == "constant" else (2 - share) / share**2) * STEP_S**2
    expected = load / (mean * STEP_S) * second / (2 * (1 - load))
    found = sum(means) / len(means)
    error = sqrt(sum((one - found) ** 2 for one in means) / (len(means) - 1) / len(means))
    assert abs(found - expected) < 3.5 * error + 0.002 * expected


def test_little_s_law_on_a_run() -> None:
    """Requests in the system on average are the rate times their time in it."""
    count = 2000
    times: Any = Constant(64)
    engine = Engine(EngineLimits(10_000, 16, 64, 8192, 100_000), times)
    engine.load([100] * count, [50] * count)
    arrivals = poisson(100.0, count, Random(3))
    serve(engine, range(count), arrivals)
    end = max(engine.finish_s)
    events = sorted([(at, 1) for at in arrivals] + [(at, -1) for at in engine.finish_s])
    area, level, before = 0.0, 0, 0.0
    for at, change in events:
        area += level * (at - before)
        level, before = level + change, at
    assert level == 0
    mean_time = sum(done - at for done, at in zip(engine.finish_s, arrivals, strict=True)) / count
    assert area / end == pytest.approx(count / end * mean_time)


def mooncake(shared: Path, count: int) -> Trace:
    """Return the first requests of the conversation trace."""
    path = shared / "data" / "traces" / "mooncake-conversation.jsonl"
    if not path.exists():
        pytest.skip("the trace is not here")
    lines = path.read_bytes().splitlines(keepends=True)[:count]
    from io import BytesIO

    return read_trace(BytesIO(b"".join(lines)), "mooncake")


def counted(trace: Trace, blocks: int) -> tuple[int, int]:
    """Return (tokens found, looked up) of requests one after another, over a free queue of so many blocks: kept by hand."""
    size = trace.block_tokens
    free: OrderedDict[object, bool] = OrderedDict((("empty", index), False) for index in range(blocks))
    found = looked = 0
    made = 0
    for index in range(len(trace.arrival_s)):
        tokens, output = trace.prompt_tokens[index], trace.output_tokens[index]
        if -(-(tokens + output - 1) // size) > blocks or tokens < 1 or output < 1:
            continue
        ids = list(trace.block_ids[trace.block_at[index] : trace.block_at[index + 1]])[: tokens // size]
        hits = 0
        while hits < min(len(ids), (tokens - 1) // size) and ids[hits] in free:
            hits += 1
        found, looked = found + hits * size, looked + tokens
        held: list[object] = list(ids[:hits])
        for one in held:
            del free[one]
        for number in range(hits, -(-(tokens + output - 1) // size)):
            free.popitem(last=False)
            fresh = number < len(ids) and ids[number] not in free and ids[number] not in held
            made += 1
            held.append(ids[number] if fresh else ("private", made))
        for one in reversed(held):
            free[one] = True
    return found, looked


def test_the_mooncake_trace_finds_again_what_an_independent_count_finds(shared: Path) -> None:
    """One request after another: the same share within 0.5 % of tokens, and more the larger the pool is."""
    trace = mooncake(shared, 1500)
    requests = of_trace(trace)
    shares = []
    for blocks in (300, 1000, 4000, 40_000):
        times: Any = Constant(1)
        engine = Engine(EngineLimits(blocks, trace.block_tokens, 1, 1 << 20, 1 << 20, prefix_caching=True), times)
        engine.load(requests.prompt_tokens, requests.output_tokens, requests.pieces)
        serve(engine, range(len(requests)), [0.0] * len(requests))
        found, looked = counted(trace, blocks)
        share = engine.hit_tokens / engine.looked_tokens
        assert engine.looked_tokens == looked
        assert share == pytest.approx(found / looked, abs=0.005)
        shares.append(share)
    assert shares == sorted(shares) and shares[-1] > shares[0] + 0.05
