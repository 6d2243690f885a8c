"""The largest step does not fit: memory ran out in a forward pass, while it was profiled or under load."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "oom-activation"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    batch = case.server.number("--max-num-batched-tokens") or int(start.figures.get("max_num_batched_tokens", 0))
    asked = (
        f" {sign.words['asked']} more were asked for, {sign.words.get('free_now', 'nothing')} was free." if "asked" in sign.words else ""
    )
    when = "under load, beyond what was profiled" if start.stage == "ready" else "while the largest step was profiled"
    step = f" with {batch:,} batched tokens" if batch else ""
    numbers: dict[str, float] = {}
    if "weights_bytes" in start.figures:
        numbers["weights_gib_per_card"] = round(start.figures["weights_bytes"] / 2**30, 2)
    smaller = min(8192, batch // 2) if batch > 2048 else 2048
    share = " and --gpu-memory-utilization 0.90" if start.stage == "ready" else ""
    return Told(
        f"memory ran out in a forward pass{step}, {when}.{asked}",
        f"use --max-num-batched-tokens {smaller} or less{share}; else a narrower checkpoint or more cards",
        numbers,
    )
