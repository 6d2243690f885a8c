"""How many sequences run at once is left to a default made for no one.

The default goes by the card (256, or 1,024 from 70 GiB up), not by the model, the context or the pool. Under load the engine
admits more than the cache holds, and preempts; with a hybrid it may not even start.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 32
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.figures import numbers
from tonnage.lint.problem import Problem
from tonnage.lint.rules.weights_unfit import does_not_fit

ID = "max-seqs-unset"
SEVERITY = "warning"
ENGINES = ("vllm",)


def check(case: Case) -> Iterator[Problem]:
    if case.server.flag("--max-num-seqs") is not None or case.server.incomplete:
        return
    plan, load = case.plan, case.load
    default = numbers(case).get("default_max_num_seqs")
    said = f"the default on this card is {default:,.0f}" if default else "the default is 256, or 1,024 on cards of 70 GiB and more"
    fits = plan is not None and load is not None and not does_not_fit(case) and plan.pool.bytes > 0
    held = f"; the pool holds {plan.users.admitted} of {load.context_tokens:,} tokens" if fits and plan and load else ""
    users = case.load.users if case.load is not None else 0
    best = min(users, plan.users.safe or users) if fits and plan is not None else users
    yield Problem(
        case.server.place,
        "--max-num-seqs is not set",
        f"{said}, whatever the model and the context{held}",
        f"use --max-num-seqs {best}" if best else "set --max-num-seqs to the users at once that a plan says fit",
        {"default_max_num_seqs": default} if default else {},
    )
