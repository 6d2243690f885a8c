"""Are requests conserved behind every router, do links hold, and is the same seed the same bytes?"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import newest, rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request, plan
from tonnage.settings import EngineSettings
from tonnage.sim.cluster import ROUTERS, Router, run
from tonnage.sim.point import point
from tonnage.sim.replica import Replica, replica
from tonnage.workload.requests import Requests
from tonnage.workload.spec import Workload
from tonnage.workload.traffic import at_rate, by_users, conversations, lengths


def one(model: str = "qwen3-8b", card: str = "l40s", context: int = 4000) -> Replica:
    """Return a replica of a small server."""
    settings = EngineSettings(release=newest("vllm"), max_num_seqs=32, enable_prefix_caching=True)
    rules = rules_for("vllm", settings.release)
    return replica(plan(Request(find_model(model), find_card(card).card, settings, Workload(16, context), rules, overhead_constants())))


LAW = lengths(4000, 300, shared=1000)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("count", [1, 3])
def test_requests_are_conserved(router: Router, count: int) -> None:
    """In = finished + rejected; time runs forward; nobody is answered before he asked."""
    requests = at_rate(LAW, 4.0, 300, Random(5))
    served = run(one(), requests, replicas=count, router=router)
    assert sum(len(engine.finished) + len(engine.rejected) for engine in served.engines) == 300
    assert sorted(index for engine in served.engines for index in [*engine.finished, *engine.rejected]) == list(range(300))
    for engine in served.engines:
        engine.check()
        for index in engine.finished:
            at = served.sent_s[index]
            assert at <= engine.admitted_s[index] < engine.first_s[index] <= engine.finish_s[index]


def test_the_same_seed_gives_the_same_bytes() -> None:
    """And another one does not."""

    def bytes_of(seed: int) -> bytes:
        return msgspec.json.encode(point(run(one(), at_rate(LAW, 2.0, 200, Random(seed))), 2.0))

    assert bytes_of(1) == bytes_of(1) != bytes_of(2)


def test_a_conversation_goes_turn_by_turn_and_finds_its_history() -> None:
    """No turn is sent before the answer to the last one and the thought after it; what was said is found in the cache."""
    requests = conversations(LAW, 8, 5, 2.0, Random(1))
    served = run(one(), requests)
    engine = served.engines[0]
    assert len(engine.finished) == len(requests)
    for index, before in enumerate(requests.after):
        if before >= 0:
            assert served.sent_s[index] == pytest.approx(engine.finish_s[before] + requests.arrival_s[index])
            assert requests.prompt_tokens[index] > requests.prompt_tokens[before] + requests.output_tokens[before] - 1
    assert engine.hit_tokens > 0.5 * engine.looked_tokens


def test_thinking_users_are_a_closed_loop() -> None:
    """With a ramp and a thought no more are in flight than users, and the burst at the start is gone."""
    burst, ramp = (run(one(), by_users(LAW, 16, 200, Random(2), ramp_s=seconds)) for seconds in (0.0, 30.0))
    waits = [point(served, 16.0).ttft_s.p99 for served in (burst, ramp)]
    assert waits[1] < waits[0]


def test_least_request_balances_better_than_turns() -> None:
    """With lengths that scatter, requests are done sooner (first tokens need not be: bursts meet on the replica that just got free)."""
    law = lengths(4000, 300, p99=7000)
    requests = at_rate(law, 4.0, 800, Random(7), burstiness=6.0)
    found = {router: point(run(one(context=7000), requests, replicas=3, router=router), 4.0).e2e_s for router in ROUTERS}
    assert found["least-request"].mean < found["round-robin"].mean


def test_two_ways_to_send_the_same_requests_give_the_same_times() -> None:
    """Round robin in one loop a replica, and event by event over all of them."""
    made, requests = one(), at_rate(LAW, 6.0, 300, Random(9), burstiness=3.0)
    apart = run(made, requests, replicas=3)
    together = run(made, msgspec.structs.replace(requests, priority=[0] * 300), replicas=3)
    assert apart.taken_by == together.taken_by
    assert apart.engines[0].finish_s == pytest.approx(together.engines[0].finish_s, abs=1e-9)


def test_what_is_too_long_is_rejected_and_the_rest_served() -> None:
    """As the engine would."""
    made = one()
    requests = Requests([0.0, 1.0, 2.0], [100, made.limits.max_model_len, 100], [10, 10, 10])
    served = run(made, requests)
    assert served.engines[0].rejected == [1] and list(served.taken_by) == [0, -1, 0]
    assert point(served, 1.0).rejected == 1


@pytest.mark.parametrize("model", ["qwen3.5-4b", "gpt-oss-20b", "deepseek-v2-lite"])
def test_hybrids_windows_and_latent_caches_are_simulated(model: str) -> None:
    """The pool holds about as many as the plan admits, and blocks are conserved."""
    made = one(model, "h100")
    served = run(made, at_rate(LAW, 4.0, 200, Random(1)), timeline_s=0.5)
    served.engines[0].check()
    found = point(served, 4.0)
    assert found.finished == 200 and 0 < found.cache_share <= 1


def test_a_clock_far_from_zero_still_moves() -> None:
    """After 16,384 s a nanosecond's thousandth is below the last bit of the clock."""
    requests = at_rate(LAW, 0.005, 150, Random(1))
    served = run(one(), requests, replicas=2, router="least-request")
    assert sum(len(engine.finished) for engine in served.engines) == 150 and max(requests.arrival_s) > 16_384


def test_a_closed_loop_goes_on_past_rejected_requests() -> None:
    """Each of them makes room for the next, to the last one."""
    made = one()
    most = made.limits.max_model_len
    for count in range(1, 30):
        prompts = [most if index % 3 else 50 for index in range(count)]
        served = run(made, Requests([0.0] * count, prompts, [10] * count, in_flight=8))
        assert len(served.engines[0].finished) + len(served.engines[0].rejected) == count
    nothing = point(run(made, Requests([0.0], [most], [10])), 1.0)
    assert (nothing.finished, nothing.rejected, nothing.limit) == (0, 1, "none")


def test_the_pool_is_seen_at_its_fullest() -> None:
    """One long answer: nothing happens between its first and its last token, and its blocks grow all the while."""
    made = one(context=30_000)
    pool = made.limits.blocks * made.limits.block_tokens
    found = point(run(made, Requests([0.0], [100], [20_000])), 1.0)
    assert found.cache_share == pytest.approx(20_100 / pool, rel=0.02)
    assert found.itl_s.p50 < found.itl_s.p99


def test_a_wait_after_preemption_is_a_gap_between_tokens() -> None:
    """As many gaps as tokens but the first ones, whatever was thrown out on the way."""
    made = one()
    small = msgspec.structs.replace(made, limits=msgspec.structs.replace(made.limits, blocks=600))
    served = run(small, Requests([0.0] * 30, [800] * 30, [900] * 30))
    engine = served.engines[0]
    assert engine.preemptions and sum(engine.gaps.values()) == 30 * 899
