"""The liveness probe kills pods that load, or that are merely busy.

Without a startup probe liveness begins while weights are read. Later a few slow answers of a saturated engine end it, with all
requests it holds, and the next pod takes minutes to load. Liveness is for hangs: slow, and after readiness has dropped.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - livenessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 5, failureThreshold: 2, timeoutSeconds: 2}

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - livenessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 30, failureThreshold: 10, timeoutSeconds: 15}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "liveness-aggressive"
SEVERITY = "warning"
FORMS = ("pod", "values")
LEAST_S = 60
"""Seconds of silence below which a busy engine is taken for a hung one."""
LEAST_START_S = 300
"""Seconds that any start is given before liveness may end it, where no startup probe does."""


def check(case: Case) -> Iterator[Problem]:
    pod = case.server.pod
    probe = pod.probe("liveness") if pod is not None else None
    if pod is None or probe is None:
        return
    silence = probe.period * probe.failures
    loading = pod.probe("startup") is None and probe.patience_s < max(LEAST_START_S, case.load_s or 0)
    if not loading and silence >= LEAST_S:
        return
    said = (
        f"liveness ends a pod {probe.patience_s} s after its start"
        if loading
        else f"liveness ends a pod after {silence} s without an answer"
    )
    why = (
        "there is no startup probe, and loading takes minutes"
        if loading
        else "a saturated engine is silent for longer, and a restart loses all it holds"
    )
    yield Problem(
        probe.place,
        said,
        f"{why}; each failure counts after {probe.timeout or 1} s",
        ("add a startupProbe sized by the load time, and " if loading else "")
        + "slow it down: periodSeconds 30, failureThreshold 10, timeoutSeconds 15",
    )
