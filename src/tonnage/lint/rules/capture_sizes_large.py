"""CUDA graphs are captured for batches that never run.

Each captured size costs memory and start-up time; up to 0.19 that memory was outside the budget, and a start could die of it.
Sizes beyond --max-num-seqs (times the draft tokens) are never replayed.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-cudagraph-capture-size 1024

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-cudagraph-capture-size 32
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "capture-sizes-large"
SEVERITY = "advice"
ENGINES = ("vllm",)
SLACK = 2


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--max-cudagraph-capture-size", "--cudagraph-capture-sizes", "--cuda-graph-sizes")
    seqs = case.server.number("--max-num-seqs")
    if flag is None or seqs is None or case.server.flag("--enforce-eager") is not None:
        return
    draft = (case.asked.num_speculative_tokens if case.asked is not None else 0) or (
        0 if case.server.flag("--speculative-config") is None else 8
    )
    sizes = [int(part) for part in re.findall(r"\d{1,9}", flag.value or "")]
    largest = max(sizes, default=0)
    if largest <= max(8, SLACK * seqs * (1 + draft)):
        return
    yield Problem(
        flag.place,
        f"{flag.name} captures batches of {largest:,}; at most {seqs * (1 + draft):,} tokens decode at once",
        "graphs that are never replayed take memory from the cache and time from every start",
        f"use {seqs * (1 + draft)}, or leave it to the engine",
    )
