"""Tensor parallelism does not divide the model: heads, vocabulary, widths or the blocks of its quantisation.

The engine checks attention heads first, then the vocabulary (padded to 64) and each matrix; FP8 checkpoints carry a scale for
every 128 x 128 block, and a rank's part must hold whole ones.

BAD (engine=vllm 0.24, model=meta-llama/Llama-3.1-8B-Instruct):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 8 --max-model-len 8192 -tp 3

GOOD (engine=vllm 0.24, model=meta-llama/Llama-3.1-8B-Instruct):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 8 --max-model-len 8192 -tp 2
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.memory.refusals import refusals

ID = "tp-indivisible"
SEVERITY = "error"
ENGINES = ("vllm", "sglang", "trtllm")
NEEDS = ("model",)
CUTS = ("quantisation-block", "quantisation-group")


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--tensor-parallel-size", "--tp-size")
    if case.engine == "trtllm":
        yield from _heads(case, case.server.number("--tp-size") or 1)
        return
    if case.model is None or case.asked is None or case.asked.parallel.tp == 1:
        return
    capability = case.card.compute_capability if case.card is not None else None
    for refusal in refusals(case.model.shape, case.asked, capability, case.rules):
        if refusal.id.endswith("-divisible") or refusal.id in CUTS:
            yield Problem(
                flag.place if flag is not None else case.server.place,
                f"--tensor-parallel-size {case.asked.parallel.tp}: {refusal.reason}",
                "the engine refuses to cut the model so",
                refusal.remedy,
                {"attention_heads": case.model.shape.heads},
            )
            return


def _heads(case: Case, tp: int) -> Iterator[Problem]:
    """Yield what every engine refuses: heads that do not divide."""
    flag = case.server.flag("--tp-size")
    if case.model is not None and flag is not None and case.model.shape.heads % tp:
        yield Problem(
            flag.place, f"--tp_size {tp}: {case.model.shape.heads} attention heads do not divide", "the engine refuses to cut the model so",
            "use a size that divides the heads", {"attention_heads": case.model.shape.heads},
        )  # fmt: skip
