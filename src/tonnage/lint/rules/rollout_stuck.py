"""An update wants more cards than there are, and waits for ever.

A Deployment starts new pods before it ends old ones (25 % surge, rounded up: one more pod even for one replica). When every
card is in use the new pod stays Pending, and the old one is not ended until it is ready.

BAD (pod; engine=vllm 0.24, node_gpus=1):

    strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}

GOOD (pod; engine=vllm 0.24, node_gpus=1):

    strategy: {type: Recreate}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import counted

ID = "rollout-stuck"
SEVERITY = "warning"
FORMS = ("pod",)
NEEDS = ("node",)


def check(case: Case) -> Iterator[Problem]:
    pod, box = case.server.pod, case.server.box
    there = case.context.node_gpus or case.context.gpu_count
    if pod is None or box is None or pod.surge is None or pod.unavailable or not pod.surge or not box.cards:
        return
    each = box.cards
    wanted = (pod.replicas + pod.surge) * each
    if wanted <= there or (pod.replicas + 1) * each <= there:
        return
    yield Problem(
        pod.strategy_place or case.server.place,
        f"an update wants {counted(wanted, 'card')}; there are {there}",
        f"maxSurge {pod.surge} starts a pod of {counted(each, 'card')} before one of {pod.replicas} ends: it waits for ever",
        "use maxSurge 0 with maxUnavailable 1, or strategy Recreate",
        {"gpus_wanted_during_update": wanted},
    )
