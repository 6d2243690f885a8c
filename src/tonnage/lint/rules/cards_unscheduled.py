"""The replicas want more cards than there are: some of them never start.

BAD (pod; engine=vllm 0.24, gpu_count=2):

    replicas: 3

GOOD (pod; engine=vllm 0.24, gpu_count=2):

    replicas: 2
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import counted

ID = "cards-unscheduled"
SEVERITY = "error"
FORMS = ("pod", "values")
NEEDS = ("cards",)


def check(case: Case) -> Iterator[Problem]:
    pod, box, context = case.server.pod, case.server.box, case.context
    if pod is None or box is None or not box.cards:
        return
    place = box.cards_place or case.server.place
    if context.node_gpus and box.cards > context.node_gpus:
        yield Problem(
            place, f"a pod wants {counted(box.cards, 'card')}; a node has {context.node_gpus}", "no node can take it: it stays Pending",
            f"use at most {context.node_gpus} a pod; beyond one node a LeaderWorkerSet",
        )  # fmt: skip
        return
    wanted = pod.replicas * box.cards * pod.pods_a_replica
    if context.gpu_count and wanted > context.gpu_count:
        holds = context.gpu_count // (box.cards * pod.pods_a_replica)
        yield Problem(
            place,
            f"replicas of {counted(box.cards * pod.pods_a_replica, 'card')} x {pod.replicas} are {wanted}; there are {context.gpu_count}",
            f"{pod.replicas - holds} of {pod.replicas} stay Pending",
            f"use {counted(holds, 'replica')}, or fewer cards each" if holds else "use fewer cards a replica",
            {"cards_wanted": wanted},
        )
