"""The kubelet knocks where nobody listens.

HTTP and TCP probes go to the pod's address. An engine bound to 127.0.0.1 never answers them, nor does one on another port: the
pod is never ready, and the gateway cannot reach it either.

BAD (pod; engine=vllm 0.24, host=127.0.0.1):

    spec:
      containers:
        - readinessProbe: {httpGet: {path: /health, port: 8000}, timeoutSeconds: 10}

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - readinessProbe: {httpGet: {path: /health, port: 8000}, timeoutSeconds: 10}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "probe-unreachable"
SEVERITY = "error"
FORMS = ("pod", "values")
DEFAULT_PORT = {"vllm": "8000", "sglang": "30000", "llama.cpp": "8080", "ollama": "11434", "trtllm": "8000"}


def check(case: Case) -> Iterator[Problem]:
    pod = case.server.pod
    if pod is None or case.server.incomplete:
        return
    for probe in pod.probes:
        if probe.kind not in ("http", "tcp"):
            continue
        if case.loopback:
            flag = case.server.flag("--host")
            yield Problem(
                flag.place if flag is not None else probe.place,
                f"the engine listens on {case.host}, and the {probe.name} probe knocks at the pod's address",
                "no probe ever succeeds, and nothing outside the pod reaches the engine",
                "listen on 0.0.0.0 and close the pod by a NetworkPolicy, or put the gateway beside it and probe by exec",
            )
            return
        listens = case.server.text("--port") or DEFAULT_PORT.get(case.engine, "")
        port = dict(pod.ports).get(probe.port, probe.port)
        if case.server.form == "pod" and listens.isdecimal() and port.isdecimal() and port != listens:
            yield Problem(
                probe.place,
                f"the {probe.name} probe knocks at port {port}; the engine listens on {listens}",
                "the probe never succeeds",
                f"use port {listens}",
            )
            return
