"""A token or key stands in clear text in a file that is kept and shared.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - env: [{name: HF_TOKEN, value: hf_000000EXAMPLEONLY000000}]

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}]
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.context import Context
from tonnage.lint.problem import Problem
from tonnage.lint.server import Bundle, Secret

ID = "secret-in-manifest"
SEVERITY = "error"


def check(case: Case) -> Iterator[Problem]:
    hub = case.server.model is not None and not case.from_hub
    for secret in case.server.secrets:
        needless = (
            "; the weights are local, so none is needed"
            if (hub and "HF" in secret.name.upper()) or "HUGGING" in secret.name.upper()
            else ""
        )
        yield _problem(secret, needless)


def check_bundle(bundle: Bundle, context: Context) -> Iterator[Problem]:
    for secret in bundle.secrets:
        yield _problem(secret, "; a ConfigMap is readable by far more than a Secret")


def _problem(secret: Secret, more: str) -> Problem:
    return Problem(
        secret.place,
        f"{secret.name} stands in clear text",
        f"whoever reads the file, its history or the process list has it{more}",
        "take it from a Secret or a file of mode 0600, and revoke this one",
    )
