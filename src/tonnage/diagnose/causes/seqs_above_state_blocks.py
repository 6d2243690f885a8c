"""More sequences than a hybrid has state blocks."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "seqs-above-state-blocks"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    asked, blocks = int(sign.number("seqs") or 0), int(sign.number("blocks") or 0)
    default = "" if case.server.flag("--max-num-seqs") is not None else " (the default)"
    users = case.load.users if case.load is not None else 0
    plan = f", {users} for the users planned" if 0 < users <= blocks else ""
    return Told(
        f"max-num-seqs {asked:,}{default} is above the {blocks:,} blocks of the pool, and each running sequence of "
        "this hybrid needs one for its "
        "state; no memory ran out, graph capture refuses",
        f"use --max-num-seqs {blocks} or less{plan}",
        {"max_num_seqs": blocks, "max_num_seqs_default": asked},
    )
