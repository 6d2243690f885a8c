"""The share of the card that the engine may take leaves nothing for bursts.

What the engine does not budget (a longer prefill than it profiled, the sampler of a full batch, another process's
context) comes out of the rest. At 0.98 of a 24 GiB card that rest is 0.5 GiB; 0.90 is the usual start, 0.95 the most
that holds under load. On a machine whose CPU and GPU share one memory the page cache needs part of it too: 0.83 there.

BAD:

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --gpu-memory-utilization 0.98

GOOD:

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --gpu-memory-utilization 0.90
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import size

ID = "utilization-high"
SEVERITY = "warning"
ENGINES = ("vllm", "sglang", "trtllm")
SHARES = (
    "--gpu-memory-utilization", "--mem-fraction-static", "--device-memory-utilization", "--free-gpu-memory-fraction",
    "--kv-cache-free-gpu-memory-fraction",
)  # fmt: skip
MOST = 0.95
MOST_SHARED = 0.83


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag(*SHARES)
    try:
        share = float(flag.value or "") if flag is not None else 0.0
    except ValueError:
        return
    shared = case.card is not None and case.card.unified
    most = MOST_SHARED if shared else MOST
    if flag is None or not most < share <= 1:
        return
    rest = f": {size(int(case.card.memory.best * (1 - share)))} of this {case.card.name}" if case.card is not None else ""
    usual = "0.80" if shared else "0.90"
    yield Problem(
        flag.place,
        f"{flag.name} {share:g} keeps {1 - share:.0%} back",
        f"bursts of prefill and sampling come out of what is kept back{rest}",
        f"use {usual}; buy concurrency with a smaller --max-model-len, an FP8 checkpoint or another card",
        {"utilization": share, "max_utilization": most},
    )
