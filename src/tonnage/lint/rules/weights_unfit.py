"""The weights of one card are more than the engine may take of it.

All experts of a mixture load, whatever its name says is active; tensor parallelism divides most of a model, not all.
The start ends with an out-of-memory while loading, and no setting but another precision or more cards helps.

BAD (gpu=GeForce RTX 4090, engine=vllm 0.33, model=Qwen/Qwen3-30B-A3B-FP8):

    vllm serve /models/qwen3-30b-a3b-fp8 --served-model-name a-30b-v1 --host 127.0.0.1 --max-model-len 8192 --max-num-seqs 8

GOOD (gpu=L40S, engine=vllm 0.33, model=Qwen/Qwen3-30B-A3B-FP8):

    vllm serve /models/qwen3-30b-a3b-fp8 --served-model-name a-30b-v1 --host 127.0.0.1 --max-model-len 8192 --max-num-seqs 8
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from tonnage.facts.catalog import published_in
from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.memory.refusals import legal_tp
from tonnage.units import gib, size

ID = "weights-unfit"
SEVERITY = "error"
ENGINES = ("vllm", "sglang")
NEEDS = ("model", "gpu")


def does_not_fit(case: Case) -> bool:
    """Return whether the weights of a card exceed what the engine may take of it, parameters moved to the CPU left out."""
    weights, share = case.weights_on_card, _share(case)
    if weights is None or case.card is None or case.server.flag("--cpu-offload-gb", "--offload-backend") is not None:
        return False
    return weights > share * case.card.memory.best


def check(case: Case) -> Iterator[Problem]:
    weights, card, share = case.weights_on_card, case.card, _share(case)
    if weights is None or card is None or case.model is None or not does_not_fit(case):
        return
    place = case.server.model.place if case.server.model is not None else case.server.place
    experts = case.model.shape.experts
    every = f"; all {experts} experts load" if experts else ""
    yield Problem(
        place,
        f"{case.model.name} puts {gib(weights)} GiB of weights on a card that may give {gib(ceil(share * card.memory.best))}",
        f"{card.name} has {size(card.memory.best)}, of which the engine takes {share:g}{every}",
        _fix(case),
        {"weights_gib_per_card": round(weights / 2**30, 2)},
    )


def _share(case: Case) -> float:
    settings = case.settings
    return (settings.gpu_memory_utilization if settings is not None else None) or 0.9


def _fix(case: Case) -> str:
    assert case.model is not None and case.settings is not None
    ways = []
    for tp in legal_tp(case.model.shape, 16):
        if tp <= case.settings.parallel.tp:
            continue
        parallel = msgspec.structs.replace(case.settings.parallel, tp=tp)
        made = case.planned(msgspec.structs.replace(case.settings, parallel=parallel))
        if made is not None and made.pool.bytes > 0 and not made.refusals:
            ways.append(f"--tensor-parallel-size {tp}")
            break
    smaller = next((name for kind in ("fp8", "int4") if (name := published_in(case.model.name, kind))), "")
    ways += [f"the checkpoint {smaller}"] if smaller else []
    return (
        f"use {' or '.join(ways)}; tonnage plan {case.model.name} shows which cards hold it"
        if ways
        else (f"use a larger card or a narrower checkpoint: tonnage plan {case.model.name} shows which cards hold it")
    )
