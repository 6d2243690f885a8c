"""The name that clients use does not say which weights answer.

Two deployments of "chat" cannot stand side by side, and nobody can say afterwards which one answered. A version (v3, r4, a date)
makes rollout and rollback unambiguous; several names at once are fine where one has it.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name assistant --host 127.0.0.1 --max-num-seqs 16

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name assistant-8b-v3 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "alias-unversioned"
SEVERITY = "advice"
ENGINES = ("vllm", "sglang")
VERSION = re.compile(
    r"(?:^|[-_.:@/])(?:(?:v|r|rev|rel|build|b|ver|version|release)[-_.]?[0-9]+(?:\.[0-9]+)*[a-z]?|20[0-9]{2}(?:[-_.]?[0-9]{2}){0,2}"
    r"|[0-9]{4,8}|[0-9]+\.[0-9]+\.[0-9]+|[0-9a-f]{7,40}|sha256.*|20[0-9]{2}[-_.]?(?:q[1-4]|w[0-9]{1,2}))(?=$|[-_.:@/])",
    re.IGNORECASE,
)


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--served-model-name")
    if flag is None or not flag.value or "$" in flag.value or "{{" in flag.value:
        return
    names = flag.value.split()
    if any(VERSION.search(name) for name in names):
        return
    name = names[0] if names else ""
    yield Problem(
        flag.place,
        f"the alias {name!r} has no version",
        "which weights answered cannot be told, and a rollback changes what the same name means",
        f"use {name}-v1, and a new version with every change of weights, precision or engine",
    )
