"""Requests begin alike, and the engine computes and stores that beginning for each of them.

A shared system prompt, retrieved documents or a conversation's history are stored once with prefix caching, and cut the
time to the first token 4 to 8 times. It is on by default in V1, for hybrids since 0.28 only.

BAD (engine=vllm 0.24, model=Qwen/Qwen3-8B, shared_prefix_tokens=1500):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --no-enable-prefix-caching

GOOD (engine=vllm 0.24, model=Qwen/Qwen3-8B, shared_prefix_tokens=1500):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "prefix-cache-off"
SEVERITY = "warning"
ENGINES = ("vllm", "sglang")
NEEDS = ("shared_prefix",)
LEAST_BLOCK = 16


def check(case: Case) -> Iterator[Problem]:
    shared = case.context.shared_prefix_tokens or 0
    if case.prefix_caching is not False or shared < (case.block_tokens or LEAST_BLOCK):
        return
    flag = case.server.flag("--no-enable-prefix-caching", "--enable-prefix-caching", "--disable-radix-cache")
    by = "switched off" if flag is not None else "off by default for this model and release"
    context = case.context.context_tokens
    share = f", {shared / context:.0%} of a sequence" if context > shared else ""
    fix = (
        "drop --disable-radix-cache"
        if case.engine == "sglang"
        else ("drop the flag" if flag is not None else "add --enable-prefix-caching")
    )
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"prefix caching is {by}, though {shared:,} tokens are shared",
        f"every request computes and stores the same {shared:,} tokens{share}",
        fix,
        {"shared_prefix_tokens": shared},
    )
