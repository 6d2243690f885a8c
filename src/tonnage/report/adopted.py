"""What runs, as a plan for a person: the plan's own lines, what no source says, and what tonnage would have chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.memory.plan import MemoryPlan
from tonnage.report.plan_text import plan_text
from tonnage.report.terminal import table, wrapped
from tonnage.units import counted

if TYPE_CHECKING:
    from tonnage.adopt import Adopted
    from tonnage.capacity.search import Option

FAR = 1.5
"""How many times another number must be to be worth a line."""


def adopted_text(found: Adopted, chosen: Option | None, *, width: int = 80, colour: bool = False) -> str:
    """Return the plan of what runs, and what stands beside it."""
    lines = wrapped(f"Adopted from {', '.join(found.sources)}: the pool is the engine's own, the rest planned beside it.", width)
    if not (found.measured.bytes or found.measured.blocks or found.measured.tokens):
        lines = wrapped(f"Adopted from {', '.join(found.sources)}: nobody measured the pool, so it is planned.", width)
    text = plan_text(found.plan, (), width=width, colour=colour).rstrip("\n").split("\n")
    lines += ["", *_without_next(text)]
    if found.unknown:
        lines += ["", "Not said by any source:"]
        lines += [part for one in found.unknown for part in wrapped(one, width, "  ", "    ")]
    rows = differences(found.plan, chosen)
    if rows:
        lines += ["", "tonnage would have chosen otherwise:"]
        lines += [
            "  " + line for line in table([("", "runs", "would be", ""), *((name, runs, best, "") for name, runs, best, _ in rows)], "lrrl")
        ]
        lines += [part for name, _, _, why in rows for part in wrapped(f"{name}: {why}", width, "    ", "      ")]
    elif chosen is not None:
        lines += ["", "tonnage would have chosen the same."]
    lines += [
        "",
        *wrapped("next: keep it with --out plan.json; tonnage lint judges it, tonnage render writes its manifests", width, "", "      "),
    ]
    return "\n".join(lines) + "\n"


def _without_next(lines: list[str]) -> list[str]:
    """Return a plan's lines without its last step, which is another one here."""
    at = next((number for number, line in enumerate(lines) if line.startswith("next:")), len(lines))
    kept = lines[:at]
    while kept and not kept[-1]:
        kept.pop()
    return kept


def differences(made: MemoryPlan, chosen: Option | None) -> Sequence[tuple[str, str, str, str]]:
    """Return (setting, as it runs, as it would be chosen, why) for each that differs in more than taste."""
    if chosen is None:
        return []
    runs, best, load = made.settings, chosen.plan.settings, made.request.workload
    found: list[tuple[str, str, str, str]] = []
    ours, theirs = best.parallel, runs.parallel
    if (ours.tp, ours.pp) != (theirs.tp, theirs.pp):
        found.append((
            "tensor x pipeline", f"{theirs.tp} x {theirs.pp}", f"{ours.tp} x {ours.pp}",
            f"{counted(chosen.replicas, 'replica')} of {counted(ours.cards, 'card')} for the users",
        ))  # fmt: skip
    wanted = min(load.users, made.users.safe or load.users)
    if (runs.max_num_seqs or 0) > FAR * wanted or (runs.max_num_seqs or 0) < wanted:
        why = "near the users, and within what the pool holds, so that the engine queues and does not thrash"
        found.append(("max-num-seqs", f"{runs.max_num_seqs:,}", f"{wanted:,}", why))
    longest = best.max_model_len or 0
    if (runs.max_model_len or 0) > FAR * longest:
        found.append(("max-model-len", f"{runs.max_model_len:,}", f"{longest:,}", "the longest that is served, not the model card"))
    share = runs.gpu_memory_utilization or 0
    if share > 0.95 or 0 < share < 0.85:
        usual = best.gpu_memory_utilization or 0.9
        found.append(("gpu-memory-utilization", f"{share:g}", f"{usual:g}", "headroom for bursts above, cache that is paid for below"))
    if runs.enable_prefix_caching != best.enable_prefix_caching:
        found.append(
            ("prefix caching", _on(runs.enable_prefix_caching), _on(best.enable_prefix_caching), "as the workload shares a prefix or not")
        )
    return found


def _on(value: bool | None) -> str:
    return "on" if value else "off"
