"""The engine can send anything anywhere.

It needs no network of its own once its weights are local: no hub, no telemetry, not even DNS. What it holds (prompts, documents,
keys) leaves by any hole. A policy that names Egress and allows nothing closes it.

BAD (pod; engine=vllm 0.24, policies=ingress):

    spec: {}

GOOD (pod; engine=vllm 0.24):

    spec: {}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "egress-open"
SEVERITY = "warning"
FORMS = ("pod", "values")
NEEDS = ("policies",)


def check(case: Case) -> Iterator[Problem]:
    if case.server.form != "pod" or case.closed("egress"):
        return
    wide = next((policy for policy in case.policies if policy.egress == "open"), None)
    said = "a NetworkPolicy lets the engine send anywhere" if wide is not None else "no NetworkPolicy limits what the engine may send"
    yield Problem(
        wide.place if wide is not None else case.server.place,
        said,
        "prompts and documents leave by any hole; a single-node engine with local weights needs no egress at all",
        "add policyTypes: [Egress] with no egress rule for its pods (several nodes: its own group alone)",
    )
