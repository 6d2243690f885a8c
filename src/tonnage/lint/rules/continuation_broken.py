"""A backslash before blanks or a comment ends the command instead of continuing it.

Only a backslash that is the last character of its line continues it. What follows is a command of its own, which the shell does not find:
the engine starts without those flags, with their defaults.

BAD (engine=vllm 0.24, also=max-seqs-unset):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 \\ # one card
      --max-num-seqs 16

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 \\
      --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "continuation-broken"
SEVERITY = "error"


def check(case: Case) -> Iterator[Problem]:
    if case.server.broken is not None:
        yield Problem(
            case.server.broken,
            "the backslash is followed by blanks, so the command ends here",
            "the flags of the next lines are a command of their own: the engine starts without them",
            "let the backslash be the last character of its line",
        )
