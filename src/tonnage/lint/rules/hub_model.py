"""The model is a name on the hub, fetched when the server starts.

What the name means can change, the start needs egress, a token and the hub's good health, and nobody has checked a hash. Serve
a folder that was staged and verified.

BAD (engine=vllm 0.24):

    vllm serve Qwen/Qwen3-8B --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16

GOOD (engine=vllm 0.24):

    vllm serve /models/qwen3-8b --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "hub-model"
SEVERITY = "advice"
ENGINES = ("vllm", "sglang", "trtllm", "llama.cpp")


def check(case: Case) -> Iterator[Problem]:
    word = case.server.model
    if word is None or not (case.from_hub or case.server.flag("-hf", "--hf-repo")):
        return
    offline = case.server.environment.get("HF_HUB_OFFLINE")
    pinned = case.server.flag("--revision") is not None
    why = "it is fetched from the hub at start: that needs egress, and what the name means can change" + (
        " less, with --revision" if pinned else ""
    )
    if offline is not None and offline.text.lower() in ("1", "true", "yes", "on"):
        why = "HF_HUB_OFFLINE keeps it from the network; it comes from a cache whose contents nobody verified"
    yield Problem(word.place, f"{word.text} is a name on the hub", why, "serve a local folder whose hashes were verified, read-only")
