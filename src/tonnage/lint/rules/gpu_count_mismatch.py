"""The ranks of the engine and the devices it is given are not the same number.

Ranks are tensor x pipeline x data parallel sizes. With fewer devices the start fails ("no device" or a hang in NCCL's
rendezvous); with more, cards stand idle that someone pays for.

BAD (engine=vllm 0.24):

    CUDA_VISIBLE_DEVICES=0,1 vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 8 -tp 4

GOOD (engine=vllm 0.24):

    CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 8 -tp 4
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.place import Place
from tonnage.lint.problem import Problem
from tonnage.units import counted

ID = "gpu-count-mismatch"
SEVERITY = "error"
ENGINES = ("vllm", "sglang", "trtllm")
ELSEWHERE = ("--data-parallel-size-local", "--data-parallel-rank", "--headless", "--data-parallel-backend", "--data-parallel-start-rank")
"""Flags by which some ranks run on other machines."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def check(case: Case) -> Iterator[Problem]:
    server = case.server
    if server.incomplete or server.wrapper or server.flag(*ELSEWHERE) or server.text("--distributed-executor-backend") == "ray":
        return
    given, where, how = _given(case)
    ranks = case.ranks
    local = -(-ranks // case.nodes)
    flag = server.flag("--tensor-parallel-size", "--tp-size", "--pipeline-parallel-size", "--pp-size", "--data-parallel-size")
    place = flag.place if flag is not None else where or server.place
    if given and given != local:
        fewer = given < local
        yield Problem(
            place,
            f"{counted(local, 'rank')} for {counted(given, 'device')} ({how})",
            "the ranks without a device fail at start" if fewer else f"{counted(given - local, 'device')} idle",
            f"{_ranks_for(case, given)}, or give it {counted(local, 'device')}",
            {"ranks": local, "devices": given},
            None if fewer else "warning",
        )
    elif not given and case.context.gpu_count and ranks > case.context.gpu_count:
        yield Problem(
            place,
            f"{counted(ranks, 'rank')} for the {counted(case.context.gpu_count, 'card')} there are",
            "the ranks without a device fail at start",
            _ranks_for(case, case.context.gpu_count),
            {"ranks": ranks, "devices": case.context.gpu_count},
        )


def _ranks_for(case: Case, devices: int) -> str:
    """Return how to make as many ranks as there are devices."""
    others = case.ranks // max(1, case.server.number("--tensor-parallel-size", "--tp-size") or 1)
    if others > 1:
        whole = devices % others == 0
        tp = f": --tensor-parallel-size {devices // others} beside the other sizes" if whole else ""
        return f"make tensor x pipeline x data parallel sizes {devices}{tp}"
    return f"use --tensor-parallel-size {devices}"


def _given(case: Case) -> tuple[int, Place | None, str]:
    """Return the devices that the engine sees, where that is said, and how; 0 where nothing says it."""
    for name in VISIBLE:
        word = case.server.environment.get(name)
        if word is None or word.unresolved or word.text.strip().lower() in ("", "all", "none", "void", "no"):
            continue
        return len([part for part in word.text.split(",") if part.strip()]), word.place, f"{name}={word.text}"
    box = case.server.box
    if box is not None and box.cards is not None:
        return box.cards, box.cards_place, "the container's devices"
    return 0, None, ""
