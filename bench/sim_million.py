"""A million requests over 16 replicas: time and memory.

    .venv/bin/python bench/sim_million.py [--json]

Poisson at 128/s, prompts of 512 and answers of 256, round robin over 16 replicas of Llama-3.1-8B in BF16 on an H100 each.
Exit code 1 above 60 s or 1 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from random import Random

from sim import llama
from tonnage.sim.cluster import run
from tonnage.sim.point import point
from tonnage.workload.draws import poisson
from tonnage.workload.requests import Requests

COUNT, REPLICAS, LIMIT_S, LIMIT_BYTES = 1_000_000, 16, 60.0, 1_000_000_000


def main() -> int:
    """Measure, print, and return 0 within the limits."""
    parser = argparse.ArgumentParser(description="a million requests over 16 replicas")
    parser.add_argument("--json", action="store_true", help="print the value")
    asked = parser.parse_args()
    started = time.perf_counter()
    requests = Requests(poisson(8.0 * REPLICAS, COUNT, Random(1)), [512] * COUNT, [256] * COUNT)
    found = point(run(llama(prefix_caching=False), requests, replicas=REPLICAS), 8.0 * REPLICAS)
    seconds = time.perf_counter() - started
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ok = seconds <= LIMIT_S and most <= LIMIT_BYTES and found.finished == COUNT
    value = {"requests": COUNT, "seconds": seconds, "requests_per_s": COUNT / seconds, "bytes": most, "ok": ok}
    print(json.dumps(value) if asked.json else "\n".join(f"{name:16} {each:,.6g}" for name, each in value.items()))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
