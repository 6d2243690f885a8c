"""Fewer sequences may run than there are users, while the cache has room for more.

Requests above --max-num-seqs wait although nothing is short. Where the cache does not hold more, that queue is right, and this
rule is silent.

BAD (gpu=H100 SXM5 80GB, engine=vllm 0.24, model=Qwen/Qwen3-8B-FP8, users=40, context_tokens=4000):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-model-len 8192 --max-num-seqs 4

GOOD (gpu=H100 SXM5 80GB, engine=vllm 0.24, model=Qwen/Qwen3-8B-FP8, users=40, context_tokens=4000):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-model-len 8192 --max-num-seqs 40
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import counted

ID = "seqs-below-need"
SEVERITY = "warning"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu", "users")


def check(case: Case) -> Iterator[Problem]:
    flag, seqs = case.server.flag("--max-num-seqs"), case.server.number("--max-num-seqs")
    plan, load, settings = case.plan, case.load, case.settings
    if flag is None or seqs is None or plan is None or load is None or settings is None:
        return
    at_once = seqs * settings.parallel.dp
    room = plan.allocation.num_blocks // max(1, plan.allocation.sequence_blocks(load.context_tokens)) * settings.parallel.dp
    best = min(load.users, room)
    if at_once >= load.users or best <= at_once:
        return
    yield Problem(
        flag.place,
        f"--max-num-seqs {seqs} for {counted(load.users, 'user')} at once",
        f"{load.users - at_once} of them wait while the cache has room for {room} sequences of {load.context_tokens:,} tokens",
        f"use --max-num-seqs {-(-best // settings.parallel.dp)}",
        {"max_num_seqs": best},
    )
