"""The BAD and GOOD examples in a rule's docstring: what the page of rules shows, and tests run.

`BAD (pod; engine=vllm 0.24, gpu=L4):` is followed by an indented block. Before the semicolon stands what the block is, where it
is a part of something clean: `pod` is merged into a whole manifest. After it stand keys of a context.
"""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import msgspec

_HEAD = re.compile(r"^(BAD|GOOD)(?: \((.*)\))?:$", re.MULTILINE)
WORKLOAD = ("users", "context_tokens", "p99_tokens", "shared_prefix_tokens", "output_tokens")


class Example(msgspec.Struct, frozen=True):
    """One example: whether the rule fires on it, what its block is a part of, what is known around it, and its text."""

    bad: bool
    part: str
    given: dict[str, str]
    text: str


def examples_of(rule: ModuleType) -> list[Example]:
    """Return the examples of a rule, in order."""
    text = inspect.getdoc(rule) or ""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        part, _, rest = (head[2] or "").rpartition(";")
        if head[2] and "=" not in rest:
            part, rest = rest, ""
        pairs = (pair.partition("=") for pair in rest.split(",") if "=" in pair)
        found.append(
            Example(
                head[1] == "BAD",
                part.strip(),
                {key.strip(): value.strip() for key, _, value in pairs},
                inspect.cleandoc(text[head.end() : end]),
            )
        )
    return found


def context_value(given: dict[str, str]) -> dict[str, Any]:
    """Return the context that an example's keys describe, as a context file holds it."""
    value: dict[str, Any] = {key: given[key] for key in ("engine", "model", "gpu") if key in given}
    value |= {key: int(given[key]) for key in ("gpu_count", "node_gpus") if key in given}
    value["workload"] = {key: int(given[key]) for key in WORKLOAD if key in given}
    if "read_gib_per_s" in given:
        value["storage"] = {"read_gib_per_s": float(given["read_gib_per_s"])}
    if "token_accounting" in given:
        value["gateway"] = {"token_accounting": given["token_accounting"] == "true"}
    return value
