"""The length limit is the model card's although nobody sends anything near it.

--max-model-len is the concurrency dial: the engine plans its admission, and refuses starts, by it. The measured p99 plus
some slack is right; what the model could do is not.

BAD (model=Qwen/Qwen3-8B, p99_tokens=6000, engine=vllm 0.24):

    vllm serve /models/qwen3-8b --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16

GOOD (model=Qwen/Qwen3-8B, p99_tokens=6000, engine=vllm 0.24):

    vllm serve /models/qwen3-8b --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-model-len 8192
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "max-len-from-card"
SEVERITY = "warning"
ENGINES = ("vllm", "sglang")
NEEDS = ("model", "p99")
FAR = 2
"""How many times the measured p99 a limit must be to be far above it."""


def check(case: Case) -> Iterator[Problem]:
    if case.model is None or case.server.incomplete:
        return
    flag = case.server.flag("--max-model-len", "--context-length")
    card, p99 = case.model.shape.max_position, case.context.p99_tokens
    limit = case.server.number("--max-model-len", "--context-length") if flag is not None else card
    if limit is None or limit < card or limit < FAR * p99:
        return
    said = (
        f"{flag.name} {limit:,} is the model card's" if flag is not None else f"no length limit is set, so it is the model card's {card:,}"
    )
    name = "--context-length" if case.engine == "sglang" else "--max-model-len"
    yield Problem(
        flag.place if flag is not None else case.server.place,
        said,
        f"the longest measured (p99) is {p99:,}: one request may take {limit / p99:.0f} times the cache of any real one",
        f"use {name} {-(-p99 * 5 // 4 // 1024) * 1024}",
        {"max_model_len": limit, "p99_tokens": p99},
    )
