"""The cache runs full while requests grow: some are thrown out and computed again."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Evidence, Sign, Start
from tonnage.lint.case import Case

ID = "preempting"


def judge(start: Start, case: Case) -> Sign | None:
    """Return the sign of preemptions that periodic lines report."""
    if not start.preemptions or start.first_preemption is None:
        return None
    evidence = [start.first_preemption]
    if start.worst is not None and start.last_interval is not None and start.last_interval.line != start.first_preemption.line:
        evidence.append(Evidence(start.last_interval.line, start.last_interval.text))
    return Sign(ID, evidence, {}, None)


def explain(start: Start, sign: Sign, case: Case) -> Told:
    total = start.preemptions or int(sign.number("total") or 0)
    worst = start.worst
    full = (
        f"; the cache stands at {worst.cache_share:.0%} with {worst.running} running and {worst.waiting} waiting"
        if worst is not None
        else ""
    )
    holds = 0
    plan = case.plan
    if plan is not None and case.load is not None and plan.pool.bytes > 0:
        holds = plan.users.admitted
    elif worst is not None:
        holds = max(1, int(worst.running * 0.9 / max(0.9, worst.cache_share)))
    limit = f"use --max-num-seqs {holds} (what the pool holds)" if holds else "lower --max-num-seqs to what the pool holds"
    return Told(
        f"{total:,} preemptions{full}: requests that lost their blocks are computed again, which costs everyone",
        f"{limit}, or add cache: an FP8 cache after an evaluation, a smaller --max-model-len for windows, more cards or replicas",
        {"preemptions_in_log": total} if total else {},
    )
