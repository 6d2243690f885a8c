"""The batch budget costs a good part of the pool.

Activations of a step grow with --max-num-batched-tokens and are profiled before the cache is sized: what they take the pool
loses. Above the default the gain in prefill throughput is small.

BAD (gpu=GeForce RTX 3090, engine=vllm 0.24, model=Qwen/Qwen3-32B-AWQ):

    vllm serve /models/m --served-model-name m-v1 --host ::1 -tp 2 --max-num-seqs 8 --max-model-len 16384 --max-num-batched-tokens 32768

GOOD (gpu=GeForce RTX 3090, engine=vllm 0.24, model=Qwen/Qwen3-32B-AWQ):

    vllm serve /models/m --served-model-name m-v1 --host ::1 -tp 2 --max-num-seqs 8 --max-model-len 16384 --max-num-batched-tokens 8192
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import gib

ID = "batched-tokens-large"
SEVERITY = "warning"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu")
USUAL = 8192
SHARE = 0.10
"""The part of the pool that a larger batch may cost before it is worth saying."""


def check(case: Case) -> Iterator[Problem]:
    flag, settings, plan = case.server.flag("--max-num-batched-tokens"), case.settings, case.plan
    asked = case.server.number("--max-num-batched-tokens")
    if flag is None or settings is None or plan is None or asked is None or asked <= USUAL:
        return
    default = msgspec.structs.replace(settings, max_num_batched_tokens=max(USUAL, settings.max_num_seqs or 0))
    usual = case.planned(default)
    if usual is None or usual.pool.bytes <= 0:
        return
    cost = usual.pool.bytes - plan.pool.bytes
    if cost < SHARE * usual.pool.bytes:
        return
    yield Problem(
        flag.place,
        f"--max-num-batched-tokens {asked:,} takes {gib(cost)} GiB from the cache",
        f"activations of a step grow with it: the pool is {gib(max(0, plan.pool.bytes))} GiB, with {USUAL:,} it is {gib(usual.pool.bytes)}",
        f"use --max-num-batched-tokens {USUAL} or less",
        {"activation_cost_gib": round(cost / 2**30, 2)},
    )
