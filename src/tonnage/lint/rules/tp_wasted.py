"""More cards than the model and its load need, in one replica.

Tensor parallelism talks over the link on every layer of every token; a model that one card holds with its load is served
faster by replicas. Beyond the KV heads ranks only store copies of them, so that the cache does not grow at all.

BAD (gpu=L4, gpu_count=4, engine=vllm 0.24, model=Qwen/Qwen2.5-3B-Instruct, users=20, context_tokens=4000):

    vllm serve /models/m --served-model-name m-3b-v1 --host 127.0.0.1 --max-num-seqs 20 --max-model-len 8192 --tensor-parallel-size 4

GOOD (gpu=L4, gpu_count=4, engine=vllm 0.24, model=Qwen/Qwen2.5-3B-Instruct, users=20, context_tokens=4000):

    vllm serve /models/m --served-model-name m-3b-v1 --host 127.0.0.1 --max-num-seqs 20 --max-model-len 8192
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.memory.ledger import Pool
from tonnage.units import counted, gib

ID = "tp-wasted"
SEVERITY = "warning"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu", "users")


def check(case: Case) -> Iterator[Problem]:
    settings, load = case.settings, case.load
    if settings is None or load is None or case.model is None or settings.parallel.tp == 1 or settings.parallel.pp > 1:
        return
    tp = settings.parallel.tp
    single = msgspec.structs.replace(settings, parallel=msgspec.structs.replace(settings.parallel, tp=1, dcp=1))
    alone = case.planned(single)
    if alone is None or alone.refusals or alone.users.safe < load.users:
        return
    flag = case.server.flag("--tensor-parallel-size")
    heads = case.has_kv_heads
    copies = f"; the model has {heads} KV heads, and {tp} ranks only copy them" if 0 < heads < tp else ""
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"--tensor-parallel-size {tp} for what one card holds",
        f"one card holds the weights and {alone.users.safe} users at {load.context_tokens:,} tokens, for {counted(load.users, 'user')} "
        f"(pool {_pool(alone.pool)}){copies}",
        f"use --tensor-parallel-size 1, and the other {f'{tp - 1} cards as replicas' if tp > 2 else 'card as a replica'}",
        {"users_on_one_card": alone.users.safe},
    )


def _pool(pool: Pool) -> str:
    return f"{gib(pool.bytes)} GiB"
