"""No attention backend takes the block size that was asked for."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "block-size-unsupported"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    asked = sign.words.get("size") or str(start.arguments.get("block_size", ""))
    cpu = "CPU_ATTN" in sign.evidence[0].text or start.device == "CPU"
    need = "the CPU backend takes multiples of 32" if cpu else "the attention backend of this card takes others"
    return Told(f"--block-size {asked} has no backend: {need}", "leave --block-size out" + (", or use 128" if cpu else ""))
