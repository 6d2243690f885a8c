"""The cache does not hold the users at their peak, so requests queue, or are preempted and computed again.

Users at once x tokens of their sequences (p95), as the engine allocates them, against the pool of one replica. A prefix that
all share is counted once where prefix caching is on.

BAD (gpu=H100 SXM5 80GB, engine=vllm 0.24, model=Qwen/Qwen3-32B-FP8, users=64, context_tokens=8000, p99_tokens=11000):

    vllm serve /models/qwen3-32b-fp8 --served-model-name m-32b-v1 --host 127.0.0.1 --max-model-len 12288 --max-num-seqs 64

GOOD (gpu=H100 SXM5 80GB, engine=vllm 0.24, model=Qwen/Qwen3-32B-FP8, users=16, context_tokens=8000, p99_tokens=11000):

    vllm serve /models/qwen3-32b-fp8 --served-model-name m-32b-v1 --host 127.0.0.1 --max-model-len 12288 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.lint.rules.weights_unfit import does_not_fit
from tonnage.memory.changes import Change, changes
from tonnage.memory.kv import ideal_users
from tonnage.memory.plan import MemoryPlan, admitted_users
from tonnage.units import counted, gib

ID = "pool-below-peak"
SEVERITY = "warning"
ENGINES = ("vllm", "sglang")
NEEDS = ("model", "gpu", "users")


def check(case: Case) -> Iterator[Problem]:
    plan, load = case.plan, case.load
    if plan is None or load is None or does_not_fit(case) or plan.pool.bytes <= 0 or _held(plan, plan.pool.bytes) >= load.users:
        return
    flag = case.server.flag("--max-num-seqs")
    each = plan.per_user.admitted_bytes
    dp, pool = plan.settings.parallel.dp, plan.pool.bytes
    ranks = f", {dp} ranks" if dp > 1 else ""
    needed = max(plan.pool.bytes + plan.shortfall_bytes, load.users * plan.per_user.ideal_bytes // dp)
    holds = max(1, plan.users.safe or plan.users.admitted)
    changes = [f"{change.what} (holds {change.users})" for change in _changes(case) if change.users >= load.users][:2]
    instead = "; or " + " or ".join(changes) if changes else "; or another replica"
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"{counted(load.users, 'user')} at {load.context_tokens:,} tokens need {gib(needed)} GiB of cache a card; the pool has {gib(pool)}",
        f"it holds {_held(plan, pool)} ({each // 2**20:,} MiB each{ranks}); others queue, and those that grow are preempted",
        f"use --max-num-seqs {holds} so that the engine queues and does not thrash{instead}",
        {"kv_needed_gib_per_card": round(needed / 2**30, 2), "pool_gib_per_card": round(plan.pool.bytes / 2**30, 2), "max_num_seqs": holds},
        "advice" if _held(plan, plan.pool.high_bytes) >= load.users else None,
    )


def _held(plan: MemoryPlan, pool_bytes: int) -> int:
    """Return the users that a pool holds while they decode.

    Pages and states are really taken; what a window reserves for batches in flight is not, so that models with windows are
    judged by the tokens they keep.
    """
    workload, settings = plan.request.workload, plan.settings
    if plan.cost.windows:
        shared = workload.shared_prefix_tokens if settings.enable_prefix_caching else 0
        return ideal_users(pool_bytes, plan.cost, workload.context_tokens, shared) * settings.parallel.dp
    return admitted_users(plan.allocation.sized(pool_bytes), workload, settings) * settings.parallel.dp


def _changes(case: Case) -> tuple[Change, ...]:
    return changes(case.plan) if case.plan is not None else ()
