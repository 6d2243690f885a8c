"""Clients call the model by its path or its hub name.

Without --served-model-name every client carries the checkpoint's name, and swapping weights or rolling back means changing all
of them. An internal, versioned alias makes a new model a deploy.

BAD (engine=vllm 0.24):

    vllm serve /models/m --host 127.0.0.1 --max-num-seqs 16

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name desk-8b-2026-03 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "alias-missing"
SEVERITY = "advice"
ENGINES = ("vllm", "sglang")


def check(case: Case) -> Iterator[Problem]:
    if (
        case.server.flag("--served-model-name") is not None
        or case.server.incomplete
        or case.server.flag("--headless") is not None
        or case.server.model is None
    ):
        return
    yield Problem(
        case.server.place,
        "no --served-model-name",
        f"clients must ask for {case.model_text or 'the path'!r}, and swapping the weights means changing every client",
        "add --served-model-name with an internal, versioned name, like desk-8b-v1",
    )
