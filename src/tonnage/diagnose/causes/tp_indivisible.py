"""Tensor parallelism does not divide the model."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case
from tonnage.memory.refusals import legal_tp

ID = "tp-indivisible"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    heads, tp = sign.number("heads"), sign.number("tp") or case.server.number("--tensor-parallel-size", "--tp-size")
    legal = [str(size) for size in legal_tp(case.model.shape, 16)] if case.model is not None else []
    if not legal and heads:
        legal = [str(size) for size in (1, 2, 4, 8, 16) if heads % size == 0]
    what = (
        f"{heads:.0f} attention heads do not divide by {tp:.0f}"
        if heads and tp and "attention" in sign.evidence[0].text
        else "a part of the model does not divide"
    )
    sizes = f"use --tensor-parallel-size {', '.join(legal[:-1])} or {legal[-1]}" if len(legal) > 1 else "lower --tensor-parallel-size"
    return Told(
        f"{what}: the engine refuses to cut the model so",
        sizes,
        {"attention_heads": heads} if heads and "attention" in sign.evidence[0].text else {},
    )
