"""Python files from the checkpoint are run with the engine's rights.

--trust-remote-code executes what `auto_map` in config.json names: whoever can change the folder or the repository runs code
beside your data. Models that the engine supports itself do not need it.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --trust-remote-code

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "trust-remote-code"
SEVERITY = "warning"


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--trust-remote-code", "--trust_remote_code")
    if flag is None or not flag.on:
        return
    where = "whatever the hub holds at that moment" if case.from_hub else "the checkpoint's own Python"
    yield Problem(
        flag.place,
        "--trust-remote-code is on",
        f"{where} runs with the engine's rights, beside your prompts and keys",
        "drop it: an architecture the engine supports needs none; else read the code, copy it into the artifact and pin its digest",
    )
