"""Many people stand in line at an engine made for one.

Ollama and llama.cpp serve a fixed number of slots, one by default in Ollama; everyone else waits. Engines with continuous
batching (vLLM, SGLang, TensorRT-LLM) run as many as the cache holds on the same card.

BAD (users=40, context_tokens=6000, engine=ollama):

    OLLAMA_HOST=127.0.0.1:11434 OLLAMA_NUM_PARALLEL=1 ollama serve

GOOD (users=1, context_tokens=6000, engine=ollama):

    OLLAMA_HOST=127.0.0.1:11434 ollama serve
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import counted

ID = "engine-unsuited"
SEVERITY = "warning"
ENGINES = ("ollama", "llama.cpp")
NEEDS = ("concurrency",)
MANY = 8


def check(case: Case) -> Iterator[Problem]:
    users = -(-case.context.users // case.server.replicas)
    word = case.server.environment.get("OLLAMA_NUM_PARALLEL")
    flag = case.server.flag("-np", "--parallel")
    slots = case.server.number("-np", "--parallel") or (int(word.text) if word is not None and word.text.isdecimal() else 1)
    if users <= slots and users < MANY:
        return
    place = flag.place if flag is not None else (word.place if word is not None else case.server.place)
    waits = (
        f"{counted(slots, 'slot')}: {users - slots} of {users} wait at any time"
        if users > slots
        else f"{slots} slots share one context, each {slots} times shorter"
    )
    yield Problem(
        place,
        f"{counted(users, 'user')} at once on an engine for one",
        waits,
        "use vLLM, SGLang or TensorRT-LLM on the same card: tonnage plan says how many it holds",
        {"slots": slots, "users": users},
    )
