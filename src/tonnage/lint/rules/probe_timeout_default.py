"""A probe waits for one second, which a busy engine does not keep.

/health answers from the same process that schedules steps; under load an answer may take seconds. With the kubelet's default
timeoutSeconds of 1, a saturated pod is taken out of service, and one that is only busy is restarted.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10}

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10, timeoutSeconds: 10}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "probe-timeout-default"
SEVERITY = "warning"
FORMS = ("pod", "values")


def check(case: Case) -> Iterator[Problem]:
    for probe in case.server.pod.probes if case.server.pod is not None else ():
        if probe.name in ("readiness", "liveness") and probe.kind == "http" and probe.timeout is None:
            effect = "takes a saturated pod out of service" if probe.name == "readiness" else "restarts a pod that is only busy"
            yield Problem(
                probe.place,
                f"the {probe.name} probe has no timeoutSeconds, so it waits 1 s",
                f"/health takes longer under load, and the kubelet {effect}",
                "set timeoutSeconds: 10 (15 for liveness)",
            )
