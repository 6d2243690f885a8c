"""More sequences than a hybrid has state blocks: the engine refuses when it captures its graphs.

Each running sequence of a model with linear attention or Mamba layers needs a state block, and pages are as large as the
state: a pool of 40 GiB may have 770 blocks, while the default is 1,024 sequences from 70 GiB up.

BAD (gpu=RTX PRO 6000 Blackwell Server, engine=vllm 0.28, model=Qwen/Qwen3.6-27B):

    vllm serve /models/qwen3.6-27b --served-model-name m-27b-v1 --host 127.0.0.1 --max-model-len 65536 --max-num-seqs 1024

GOOD (gpu=RTX PRO 6000 Blackwell Server, engine=vllm 0.28, model=Qwen/Qwen3.6-27B):

    vllm serve /models/qwen3.6-27b --served-model-name m-27b-v1 --host 127.0.0.1 --max-model-len 65536 --max-num-seqs 32
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.memory.refusals import seqs_that_start

ID = "seqs-above-state-blocks"
SEVERITY = "error"
ENGINES = ("vllm",)
NEEDS = ("model", "gpu")


def check(case: Case) -> Iterator[Problem]:
    plan, settings = case.plan, case.settings
    if plan is None or settings is None or plan.pool.bytes <= 0 or not case.stateful:
        return
    most = seqs_that_start(plan.allocation)
    if most is None:
        return
    flag = case.server.flag("--max-num-seqs")
    asked = settings.max_num_seqs or 0
    said = f"--max-num-seqs {asked:,}" if flag is not None else f"the default of {asked:,} sequences on this card"
    users = case.load.users if case.load is not None else 0
    best = f"{users} (the users planned), at most {most}" if 0 < users < most else f"at most {most}"
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"{said} is above the {plan.allocation.num_blocks:,} blocks of the pool",
        f"each running sequence of this hybrid needs a state block of {plan.allocation.bytes_per_block / 2**20:,.1f} MiB, and the engine "
        "refuses to capture graphs for more sequences than blocks",
        f"set --max-num-seqs to {best}",
        {"max_num_seqs": most, "default_max_num_seqs": asked} if flag is None else {"max_num_seqs": most},
    )
