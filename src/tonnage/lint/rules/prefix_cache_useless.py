"""Prefix caching is on and can never hit: a block is longer than what requests share, or than any request.

Only whole blocks are found again. A hybrid's attention block is enlarged until it is as long as its state is large: 528
tokens for Qwen3.5-4B, 2,096 for Nemotron-3-Nano. A shared prompt shorter than that is never cached, while caching costs a
hybrid one or two more state blocks a sequence.

BAD (gpu=A100 SXM4 40GB, engine=vllm 0.19, model=Qwen/Qwen3.5-4B, shared_prefix_tokens=480):

    vllm serve /models/m --served-model-name m-4b-v1 --host 127.0.0.1 --max-num-seqs 32 --max-model-len 1024 --enable-prefix-caching

GOOD (gpu=A100 SXM4 40GB, engine=vllm 0.19, model=Qwen/Qwen3.5-4B, shared_prefix_tokens=1200):

    vllm serve /models/m --served-model-name m-4b-v1 --host 127.0.0.1 --max-num-seqs 32 --max-model-len 4096 --enable-prefix-caching
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "prefix-cache-useless"
SEVERITY = "warning"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu")


def check(case: Case) -> Iterator[Problem]:
    block, settings = case.block_tokens, case.settings
    if not case.prefix_caching or block is None or settings is None:
        return
    flag = case.server.flag("--enable-prefix-caching")
    shared, longest = case.context.shared_prefix_tokens, settings.max_model_len or 0
    if longest < block:
        said = f"no request reaches a block: it has {block:,} tokens, --max-model-len is {longest:,}"
    elif shared is not None and 0 < shared < block:
        said = f"the {shared:,} shared tokens never fill a block of {block:,}"
    elif shared == 0 and (flag is not None or case.stateful):
        said = "nothing repeats in this workload"
    else:
        return
    cost = "; it costs this hybrid state blocks for each sequence" if case.stateful else ""
    prefix = f"make the shared prefix at least {block:,} tokens, or " if shared else ""
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"prefix caching can never hit: {said}",
        f"only whole blocks are found again{cost}",
        f"{prefix}use --no-enable-prefix-caching",
        {"attention_block_tokens": block},
    )
