"""The checkpoint on disk is not whole, or not what its index says."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "checkpoint-broken"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    text = " ".join(one.text for one in sign.evidence)
    shard = ""
    if start.shards is not None:
        done, total, _ = start.shards
        shard = f" at shard {min(done + 1, total)} of {total}"
    if "No such file" in text or "does not appear to have" in text or "Cannot find any" in text:
        return Told(
            f"a file of the checkpoint is missing{shard}",
            "compare the folder with its manifest and copy what is missing again; check the mount",
        )
    return Told(
        f"a file of the checkpoint is damaged or cut{shard}: its header promises more bytes than there are",
        "compare sizes and hashes with the manifest and copy that file again; check headers before deployment",
    )
