"""No card is reserved for the container.

Without a GPU in its limits the scheduler counts no card, and places other pods on the same one; with
NVIDIA_VISIBLE_DEVICES=all the engine then shares it unseen, and finds its memory taken. Docker gives no device without --gpus.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - resources: {limits: {memory: 24Gi}}

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - resources: {limits: {memory: 24Gi, nvidia.com/gpu: "1"}}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.lint.server import Box

ID = "gpu-limit-missing"
SEVERITY = "error"
FORMS = ("docker", "compose", "pod", "values")
ENGINES = ("vllm", "sglang", "trtllm")
FIX = {
    "docker": "add --gpus '\"device=0\"' or as many as it has ranks",
    "compose": "add deploy.resources.reservations.devices with driver nvidia, or gpus",
    "pod": 'add nvidia.com/gpu: "{ranks}" to resources.limits',
    "values": "set requestGPU (production-stack) or nvidia.com/gpu in resources.limits",
}


def check(case: Case) -> Iterator[Problem]:
    box, server = case.server.box, case.server
    if box is None or box.asks_cards or any(word in _name(box) for word in ("cpu", "tpu")):
        return
    if server.pod is not None and server.pod.kind == "InferenceService" and box.image is None:
        return
    yield Problem(
        box.cards_place or server.place,
        "the container asks for no GPU",
        "the scheduler reserves none: the engine finds no card, or one that others use"
        if server.pod is not None
        else "the engine finds no card",
        FIX[server.form].replace("{ranks}", str(case.ranks)),
    )


def _name(box: Box) -> str:
    """Return the last part of the image's name."""
    return box.image.text.rsplit("/", 1)[-1].lower() if box.image is not None else ""
