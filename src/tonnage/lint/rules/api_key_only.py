"""A key in the engine is all that stands between an open address and the model.

The engine checks it on its /v1 routes; others (/metrics, /tokenize, and on some releases more) answer without. It is one key for
all, in clear text in the process list or the environment, and nobody can be told apart or limited.

BAD (engine=vllm 0.24, also=bind-open):

    VLLM_API_KEY=$(cat /run/key) vllm serve /models/m --served-model-name m-8b-v1 --host 0.0.0.0 --max-num-seqs 16

GOOD (engine=vllm 0.24):

    VLLM_API_KEY=$(cat /run/key) vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "api-key-only"
SEVERITY = "warning"


def check(case: Case) -> Iterator[Problem]:
    flag, word = case.server.flag("--api-key"), case.server.environment.get("VLLM_API_KEY")
    if (flag is None and word is None) or (case.exposed is None and not case.ingress_open):
        return
    place = flag.place if flag is not None else (word.place if word is not None else case.server.place)
    yield Problem(
        place,
        "a key is the only guard of an open address",
        "it covers the /v1 routes alone, is the same for every client, and stands where processes can be listed",
        "bind to 127.0.0.1 (or close the pod) and let a gateway authenticate, limit and allow paths",
    )
