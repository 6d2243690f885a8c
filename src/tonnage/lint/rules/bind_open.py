"""Whoever reaches the machine reaches the engine.

vLLM listens on every interface unless --host says otherwise, and has no authorization: any client may send prompts, read
/metrics, and on some releases load adapters or put the engine to sleep. Behind a gateway on the same machine it belongs on
127.0.0.1. A pod is judged by its policies (ingress-open), a container by the ports it publishes.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --max-num-seqs 16 --host 0.0.0.0

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --max-num-seqs 16 --host 127.0.0.1
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "bind-open"
SEVERITY = "error"


def check(case: Case) -> Iterator[Problem]:
    place = case.exposed
    if place is None:
        return
    box = case.server.box
    if case.server.pod is not None:
        message, fix = (
            "hostNetwork puts the engine on the node's own addresses",
            "drop hostNetwork; let a Service and a NetworkPolicy lead to it",
        )
    elif box is not None and box.host_network is None:
        message = "the engine's port is published on every interface"
        fix = "publish it on 127.0.0.1 behind a gateway (127.0.0.1:8000:8000), or not at all"
    else:
        flag = case.server.flag("--host")
        known = flag is not None or case.engine == "ollama"
        message = f"the engine listens on {case.host}" if known else "with no --host the engine listens on every interface"
        fix = (
            "set OLLAMA_HOST=127.0.0.1:11434 and put a gateway in front"
            if case.engine == "ollama"
            else "use --host 127.0.0.1 and put a gateway in front"
        )
    yield Problem(place, message, "it has no authorization: whoever reaches the address may send prompts and read its metrics", fix)
