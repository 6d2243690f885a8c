"""One request of the longest allowed length does not fit the pool, so the engine refuses to start.

Unset, --max-model-len is what the model's card says, often 131,072 tokens or more. The engine checks that one such request
fits before it serves anything.

BAD (gpu=GeForce RTX 4090, engine=vllm 0.24, model=Qwen/Qwen3-8B):

    vllm serve /models/qwen3-8b --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-model-len 40960

GOOD (gpu=GeForce RTX 4090, engine=vllm 0.24, model=Qwen/Qwen3-8B):

    vllm serve /models/qwen3-8b --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-model-len 16384
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.lint.rules.batched_tokens_large import USUAL
from tonnage.lint.rules.weights_unfit import does_not_fit
from tonnage.memory.allocator import Allocation
from tonnage.memory.refusals import does_not_hold_one, longest_that_fits
from tonnage.units import gib

ID = "max-len-unfit"
SEVERITY = "error"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu")


def check(case: Case) -> Iterator[Problem]:
    plan, settings = case.plan, case.settings
    if plan is None or settings is None or does_not_fit(case) or not isinstance(plan.allocation, Allocation):
        return
    if (case.server.text("--max-model-len") in ("auto", "-1")) or case.server.flag("--num-gpu-blocks-override") is not None:
        return
    longest = settings.max_model_len or 0
    if _holds(plan.allocation, plan.pool.bytes, longest) or _batch_is_the_cause(case, longest):
        return
    flag = case.server.flag("--max-model-len")
    fits = longest_that_fits(plan.allocation) if plan.pool.bytes > 0 else 0
    needed = plan.allocation.sequence_bytes(longest)
    sure = not _holds(plan.allocation, plan.pool.high_bytes, longest)
    said = f"--max-model-len {longest:,}" if flag is not None else f"with no --max-model-len the limit is the model card's {longest:,}"
    band = "" if sure else f" (at best {gib(plan.pool.high_bytes)})"
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"{said}: one request of it needs {gib(needed)} GiB of cache on a card, the pool has {gib(max(0, plan.pool.bytes))}{band}",
        "the engine refuses to start with a limit it cannot serve once",
        f"set --max-model-len to the longest you serve, at most {fits:,}"
        if fits
        else "use a larger card, more cards or a narrower checkpoint",
        {"max_model_len": longest, "longest_that_fits": fits, "kv_gib_at_max_len_per_card": round(needed / 2**30, 2)},
        None if sure else "warning",
    )


def _holds(allocation: Allocation, pool_bytes: int, longest: int) -> bool:
    """Return whether a pool holds one request of a length."""
    if not allocation.groups:
        return True
    return pool_bytes > 0 and does_not_hold_one(allocation.sized(pool_bytes), pool_bytes) is None


def _batch_is_the_cause(case: Case, longest: int) -> bool:
    """Return whether the pool would hold it with a usual batch budget: then that is what is wrong (batched-tokens-large)."""
    settings = case.settings
    if settings is None or (settings.max_num_batched_tokens or 0) <= USUAL or case.server.flag("--max-num-batched-tokens") is None:
        return False
    usual = case.planned(msgspec.structs.replace(settings, max_num_batched_tokens=max(USUAL, settings.max_num_seqs or 0)))
    return usual is not None and isinstance(usual.allocation, Allocation) and _holds(usual.allocation, usual.pool.bytes, longest)
