"""The kubelet ends the start before the weights are read.

Startup probe: initial delay + period x failures is all the time there is; without one the liveness probe begins at once.
Loading takes the weights over the storage's rate, then compilation and graphs. The pod is killed for ever ("KeyboardInterrupt:
terminated"), which looks like a fault of the GPU.

BAD (pod; engine=vllm 0.24, model=meta-llama/Llama-3.3-70B-Instruct, read_gib_per_s=0.4):

    spec:
      containers:
        - startupProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 5, failureThreshold: 30, timeoutSeconds: 5}

GOOD (pod; engine=vllm 0.24, model=meta-llama/Llama-3.3-70B-Instruct, read_gib_per_s=0.4):

    spec:
      containers:
        - startupProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10, failureThreshold: 90, timeoutSeconds: 5}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.render.startup import start_period_s
from tonnage.units import gib

ID = "probe-impatient"
SEVERITY = "error"
FORMS = ("pod", "values")
NEEDS = ("model", "storage")


def check(case: Case) -> Iterator[Problem]:
    pod, load, weights = case.server.pod, case.load_s, case.weights_bytes
    if pod is None or load is None or weights is None:
        return
    probe = pod.probe("startup") or pod.probe("liveness")
    if probe is None or probe.patience_s >= load:
        return
    rate = case.context.read_bytes_per_s
    wanted = start_period_s(weights, rate)
    yield Problem(
        probe.place,
        f"the {probe.name} probe gives up after {probe.patience_s} s; reading the weights takes {load:,.0f} s",
        f"{gib(weights)} GiB at {gib(rate)} GiB/s, before compilation: the kubelet ends the start for ever",
        f"allow {wanted} s: periodSeconds 10, failureThreshold {-(-wanted // 10)}"
        + ("" if probe.name == "startup" else ", in a startupProbe"),
        {"startup_budget_s": probe.patience_s, "load_s": round(load, 1)},
    )
