"""CUDA graphs do not fit beside the pool: memory ran out while they were captured."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "oom-graph"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    share = case.server.text("--gpu-memory-utilization", "--mem-fraction-static")
    old = case.release is not None and case.release < (0, 20)
    charged = (
        "up to 0.19 graphs are captured after the pool took its share, outside the budget"
        if old
        else "the estimate of the graphs fell short"
    )
    given = case.asked.gpu_memory_utilization if case.asked is not None and share else None
    lower = "0.90" if given is None or given > 0.9 else f"{max(0.5, given - 0.03):.2f}"
    return Told(
        f"weights and pool were fine; memory ran out while CUDA graphs were captured: {charged}"
        + (f", and utilization is {share}" if share else ""),
        f"use --gpu-memory-utilization {lower}, fewer capture sizes (--max-cudagraph-capture-size), or "
        "--enforce-eager at the cost of speed",
    )
