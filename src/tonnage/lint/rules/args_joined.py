"""Several words are given as one.

A list item is one word to the program: "--tensor-parallel-size 8" is a flag of that whole name, and a command line as one item is
a program of that whole name. Split them, or use --flag=value.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - args: [--model, /models/m, --served-model-name=m-8b-v1, "--max-num-seqs 16"]

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - args: [--model, /models/m, --served-model-name=m-8b-v1, --max-num-seqs=16]
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "args-joined"
SEVERITY = "error"


def check(case: Case) -> Iterator[Problem]:
    for word in case.server.joined:
        first = word.text.split()[0] if word.text.split() else ""
        short = word.text if len(word.text) <= 48 else word.text[:45] + "..."
        if first.startswith("-"):
            rest = word.text.strip()[len(first) :].strip()
            yield Problem(
                word.place,
                f"'{short}' is one word",
                "the parser sees a flag of that whole name and exits",
                f"write two items, or {first}={rest}",
            )
        else:
            yield Problem(
                word.place,
                f"'{short}' is one word",
                "the container looks for a program of that whole name",
                "one item a word, or sh -c with it",
            )
