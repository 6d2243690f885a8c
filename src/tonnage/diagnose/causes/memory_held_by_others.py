"""Another process holds memory of the card, and the budget is a share of the total that is checked against what is free."""

from __future__ import annotations

from math import floor

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "memory-held-by-others"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    free, total = sign.number("free"), sign.number("total")
    device = sign.words.get("device", "").strip() or "the card"
    if free is None or not total:
        return Told(
            f"memory of {device} was taken or given back by another process while the engine measured",
            "find and end it (nvidia-smi on the host, other containers too), then start again",
        )
    if "share" not in sign.words:
        return Told(
            f"{sign.words.get('held', '')} of {total:g} GiB of {device} are held by other processes: what is left does not do",
            f"find and end the other process on {device} (nvidia-smi on the host, other containers too), then start again",
            {"held_gib": round(total - free, 2)},
        )
    most = floor(100 * free / total) / 100
    return Told(
        f"{total - free:.1f} of {total:g} GiB of {device} are held by others; the engine asks for "
        f"{sign.words.get('share', '')} of the total "
        f"({sign.words.get('wanted', '')} GiB), and {free:g} are free",
        f"find and end the other process on {device} (nvidia-smi on the host, other containers too); --gpu-memory-utilization {most:.2f} "
        "would start, with less cache on every card",
        {"max_utilization": most, "held_gib": round(total - free, 2)},
    )
