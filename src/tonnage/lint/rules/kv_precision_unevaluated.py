"""The cache is stored in a lossy format and nothing says that the answers were checked.

FP8 weights cost next to nothing in quality; an FP8 cache costs more, most at long context, and with scale 1.0 it may
cost very much (one latent-attention model fell from a score of 4.61 to 1.07, another was unharmed). Treat it as a change of
model: run the evaluation again. A plan that records one (`tonnage eval compare`) silences this for that release.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --kv-cache-dtype fp8

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --kv-cache-dtype auto
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "kv-precision-unevaluated"
SEVERITY = "warning"
EXACT = ("", "auto", "bfloat16", "float16", "half", "bf16", "f16", "f32", "float32")


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--kv-cache-dtype", "--cache-type-k", "-ctk", "--cache-type-v", "-ctv")
    word = case.server.environment.get("OLLAMA_KV_CACHE_TYPE") if case.engine == "ollama" else None
    value = flag.value or "" if flag is not None else (word.text if word is not None else "")
    place = flag.place if flag is not None else (word.place if word is not None else None)
    if place is None or value.lower() in EXACT or "$" in value or case.server.evaluated:
        return
    scales = case.server.flag("--calculate-kv-scales") is None and value.startswith("fp8")
    yield Problem(
        place,
        f"the cache is stored as {value}, which loses precision",
        "keys and values are rounded, most felt at long context"
        + ("; without calibrated scales they are stored at scale 1.0" if scales else ""),
        "evaluate the model with this cache at your longest context before it serves, and record the result in the plan",
    )
