"""One request of max-model-len does not fit the pool."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "max-len-exceeds-cache"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    longest, fits = int(sign.number("longest") or 0), int(sign.number("fits") or 0)
    needed, have = sign.number("needed"), sign.number("have")
    numbers: dict[str, float] = {"max_model_len": fits} if fits else {}
    told = case.server.flag("--max-model-len") is not None and "max_model_len" in start.arguments
    whose = f"--max-model-len {longest:,}" if told else f"the model card's {longest:,} tokens (no --max-model-len is set)"
    if needed is not None and have is not None:
        numbers |= {"kv_needed_gib": needed, "kv_available_gib": have}
        if case.cost is not None:
            numbers["kv_bytes_per_token_per_card"] = case.cost.growth(longest)
        if case.whole_cost is not None:
            numbers["kv_bytes_per_token"] = case.whole_cost.growth(longest)
        verb = "needs" if told else "need"
        gap = f"{whose} {verb} {_gib(needed)} of cache for one request; {_gib(have)} are left after the weights"
    else:
        gap = f"{whose} are more than the {fits:,} tokens the cache holds"
    users = case.context.p99_tokens or case.context.context_tokens
    best = f"--max-model-len {fits}" if fits else "a smaller --max-model-len"
    wants = f" (your longest is {users:,})" if users and users <= fits else ""
    return Told(gap, f"use {best}{wants}; for more a second card, an FP8 cache after an evaluation, or a narrower checkpoint", numbers)


def _gib(value: float) -> str:
    return f"{value:g} GiB" if value >= 0.01 or not value else "less than 0.01 GiB"
