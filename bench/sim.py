"""How many requests a second does the simulator serve?

    .venv/bin/python bench/sim.py [--json] [--seconds 24]

W1         Poisson at 8/s, prompts of 512, answers of 256
W4         a closed loop of 256, prompts and answers of 1,024
W1_prefix  W1 with prefix caching, half of each prompt one of eight shared texts, and all percentiles

Llama-3.1-8B in BF16 on one H100, as the public simulators were timed (reference: simulation physics, section 4). The three
are run in turn for some seconds and the best run of each counts: a machine is at times slower than it is, and never faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from random import Random

from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import newest, rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request, plan
from tonnage.settings import EngineSettings
from tonnage.sim.cluster import run
from tonnage.sim.point import point
from tonnage.sim.replica import Replica, replica
from tonnage.workload.draws import poisson
from tonnage.workload.requests import Requests
from tonnage.workload.spec import Workload


def llama(*, prefix_caching: bool) -> Replica:
    """Return Llama-3.1-8B in BF16 on one H100."""
    settings = EngineSettings(release=newest("vllm"), max_num_seqs=256, max_model_len=131_072, enable_prefix_caching=prefix_caching)
    rules = rules_for("vllm", settings.release)
    made = plan(Request(find_model("llama-3.1-8b"), find_card("h100").card, settings, Workload(64, 2048), rules, overhead_constants()))
    return replica(made)


def w1(count: int, seed: int, *, shared: bool = False) -> Requests:
    """Return W1: Poisson arrivals."""
    draw = Random(seed)
    times = poisson(8.0, count, draw)
    pieces = [((draw.randrange(8), 256),) for _ in range(count)] if shared else []
    return Requests(times, [512] * count, [256] * count, pieces=pieces)


def measured(requests: Requests, *, prefix_caching: bool, percentiles: bool) -> float:
    """Return requests a second of one run."""
    made = llama(prefix_caching=prefix_caching)
    started = time.perf_counter()
    served = run(made, requests)
    if percentiles:
        point(served, 8.0)
    return len(requests) / (time.perf_counter() - started)


def main() -> int:
    """Measure the three, print them, and return 0."""
    parser = argparse.ArgumentParser(description="requests a second of the simulator")
    parser.add_argument("--json", action="store_true", help="print the three numbers alone")
    parser.add_argument("--seconds", type=float, default=24.0, help="seconds of runs in turn (default 24)")
    asked = parser.parse_args()
    plain, shared = w1(20_000, 1), w1(20_000, 1, shared=True)
    w4 = Requests([0.0] * 2560, [1024] * 2560, [1024] * 2560, in_flight=256)
    found = {"W1": 0.0, "W4": 0.0, "W1_prefix": 0.0}
    end = time.perf_counter() + asked.seconds
    while time.perf_counter() < end:
        for name, requests, prefix in (("W1", plain, False), ("W4", w4, False), ("W1_prefix", shared, True)):
            found[name] = max(found[name], measured(requests, prefix_caching=prefix, percentiles=prefix))
    print(json.dumps(found) if asked.json else "\n".join(f"{name:10} {rate:12,.0f} requests/s" for name, rate in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
