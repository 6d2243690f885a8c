"""Room is kept for images and videos that nobody may ever send.

A model with a vision tower profiles its largest images before the cache is sized, and loads the tower. Text-only services win
both back with --language-model-only; others say how many items a request may hold.

BAD (gpu=L4, engine=vllm 0.33, model=Qwen/Qwen3.5-9B):

    vllm serve /models/m --served-model-name m-9b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-model-len 16384 --gpu-memory-utilization 0.95

GOOD (gpu=L4, engine=vllm 0.33, model=Qwen/Qwen3.5-9B):

    vllm serve /models/m --served-model-name m-9b-v1 --host 127.0.0.1 --max-num-seqs 16 --max-model-len 16384 --language-model-only
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.lint.rules.weights_unfit import does_not_fit
from tonnage.units import gib

ID = "mm-limit-unset"
SEVERITY = "advice"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu")
SHARE = 0.10
"""The part of the pool that the tower must cost before it is worth saying."""
FLAGS = ("--limit-mm-per-prompt", "--language-model-only", "--skip-mm-profiling", "--mm-encoder-only")


def check(case: Case) -> Iterator[Problem]:
    if case.model is None or not case.model.shape.vision or case.settings is None or case.plan is None or case.server.incomplete:
        return
    if case.server.flag(*FLAGS) is not None or does_not_fit(case):
        return
    alone = case.planned(msgspec.structs.replace(case.settings, language_model_only=True))
    if alone is None or alone.pool.bytes <= 0 or alone.pool.bytes - case.plan.pool.bytes < SHARE * alone.pool.bytes:
        return
    yield Problem(
        case.server.place,
        "nothing limits images and videos",
        f"the vision tower and its largest items take {gib(alone.pool.bytes - case.plan.pool.bytes)} of the {gib(alone.pool.bytes)} GiB a "
        "text-only pool would have",
        "use --language-model-only where nobody sends images, else --limit-mm-per-prompt",
    )
