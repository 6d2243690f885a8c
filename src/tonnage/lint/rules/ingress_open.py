"""Anyone in the cluster, or outside, can reach the engine.

It has no authorization of its own: the gateway in front has. A policy that lets only the gateway and monitoring in closes it; a
LoadBalancer or NodePort without one opens it to the world.

BAD (pod; engine=vllm 0.24, policies=egress):

    spec: {}

GOOD (pod; engine=vllm 0.24):

    spec: {}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "ingress-open"
SEVERITY = "warning"
FORMS = ("pod", "values")
NEEDS = ("policies",)


def check(case: Case) -> Iterator[Problem]:
    if case.server.form != "pod" or case.closed("ingress"):
        return
    wide = next((policy for policy in case.policies if policy.ingress == "open"), None)
    outside = next((service for service in case.services if service.kind in ("LoadBalancer", "NodePort")), None)
    if outside is not None:
        yield Problem(
            outside.place,
            f"a {outside.kind} leads to the engine and no NetworkPolicy closes it",
            "it is open beyond the cluster, without authorization",
            "make it a ClusterIP, and let only the gateway and monitoring in by a NetworkPolicy",
            {},
            "error",
        )
        return
    said = "a NetworkPolicy lets everyone reach the engine" if wide is not None else "no NetworkPolicy limits who reaches the engine"
    yield Problem(
        wide.place if wide is not None else case.server.place,
        said,
        "every pod of the cluster may send prompts past the gateway, its keys and its limits",
        "let only the gateway and monitoring in: policyTypes: [Ingress] with their selectors",
    )
