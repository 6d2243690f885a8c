"""The cards do not reach each other: a collective operation never finished."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "collective-timeout"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    ms = sign.number("ms")
    text = " ".join(one.text for one in sign.evidence)
    first = "last completed work: -1" in text or start.stage in ("start", "load")
    operation = sign.words.get("op", "a collective operation").lower()
    seconds = f" in {ms / 1000:,.0f} s" if ms else ""
    why = f"{operation} did not finish{seconds}" + (
        ": not one ever did, so the cards cannot talk to each other (peer-to-peer blocked by IOMMU/ACS or a VM)"
        if first
        else ": a rank died or hangs; look for the first error of another rank"
    )
    fix = (
        "test NCCL alone (all_reduce_perf on these cards); NCCL_P2P_DISABLE=1 as a diagnosis, then fix ACS/IOMMU on the host"
        if first
        else "take a stack dump of each rank (py-spy), look for the rank that is behind, and restart the engine"
    )
    return Told(why, fix, {"timeout_s": ms / 1000} if ms else {})
