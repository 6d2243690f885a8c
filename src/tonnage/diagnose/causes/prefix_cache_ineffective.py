"""Prefix caching finds next to nothing of what requests are said to share."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "prefix-cache-ineffective"
FEWEST = 3
"""Periodic lines below which a hit rate says nothing."""
FAR_BELOW = 0.25
"""The part of the expected hit rate below which caching does not work."""


def judge(start: Start, case: Case) -> Sign | None:
    """Return the sign of a hit rate far below what the shared prefix would give."""
    shared, context = case.context.shared_prefix_tokens or 0, case.context.context_tokens
    rate = start.running.hit_share if start.running is not None else None
    if not shared or rate is None or start.count < FEWEST or not start.prompted or start.last_interval is None:
        return None
    expected = shared / context if context > shared else 0.2
    return Sign(ID, [start.last_interval], {}, None) if rate < FAR_BELOW * expected else None


def explain(start: Start, sign: Sign, case: Case) -> Told:
    shared = case.context.shared_prefix_tokens or 0
    rate = start.running.hit_share if start.running is not None else None
    block = int(start.figures.get("attention_block_tokens", 0)) or (case.block_tokens or 0)
    numbers: dict[str, float] = {"prefix_hit_rate": rate} if rate is not None else {}
    if block:
        numbers["attention_block_tokens"] = block
    if block > shared:
        return Told(
            f"{rate:.1%} of prompt tokens are found: the {shared:,} shared tokens are shorter than one attention block "
            f"of {block:,}, and only whole "
            "blocks are found again",
            f"make the shared prefix longer than {block:,} tokens, or use --no-enable-prefix-caching and win its state blocks",
            numbers,
        )
    return Told(
        f"{rate:.1%} of prompt tokens are found although {shared:,} are shared: what comes first differs (a date, "
        "a name, an id), or blocks are evicted "
        "before they are used again",
        "put what changes behind what is shared; give the pool room, or route equal prefixes to the same replica",
        numbers,
    )
