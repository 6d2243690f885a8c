"""The gateway counts tokens, and streams do not carry them.

A streamed answer holds usage only where the client asks for it, or the engine is told to always send it. What the gateway does
not see it does not count: budgets and bills are too low by every stream.

BAD (engine=vllm 0.24, token_accounting=true):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16

GOOD (engine=vllm 0.24, token_accounting=true):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --enable-force-include-usage
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts.flags import flags_of
from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "usage-not-forced"
SEVERITY = "warning"
ENGINES = ("vllm",)
NEEDS = ("gateway",)
FLAG = "--enable-force-include-usage"


def check(case: Case) -> Iterator[Problem]:
    counts = case.context.token_accounting or any(gateway.counts_tokens for gateway in case.bundle.gateways)
    if not counts or case.server.on(FLAG) or case.server.incomplete or case.server.flag("--headless") is not None:
        return
    known = case.release is None or FLAG in flags_of(case.release)
    yield Problem(
        case.server.place,
        "the gateway counts tokens, but streams carry usage only when a client asks",
        "every stream without stream_options.include_usage goes uncounted",
        f"add {FLAG}" if known else "move to a release with --enable-force-include-usage, or have the gateway ask for usage",
    )
