"""The engine runs as root.

Images of engines run as root unless told otherwise, and parse what strangers send: a hole in one is then root's, with the
GPU driver in reach. They run as any user with a writable home for their caches.

BAD (pod; engine=vllm 0.24):

    spec:
      securityContext: {runAsUser: 0}
      containers:
        - securityContext: {allowPrivilegeEscalation: false}

GOOD (pod; engine=vllm 0.24):

    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 10001}
      containers:
        - securityContext: {allowPrivilegeEscalation: false}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "runs-as-root"
SEVERITY = "warning"
FORMS = ("docker", "compose", "pod", "values")


def check(case: Case) -> Iterator[Problem]:
    box = case.server.box
    if box is None or box.user == "other" or (box.user == "" and case.server.form != "pod"):
        return
    said = "the container runs as user 0" if box.user == "root" else "nothing says that the container does not run as root"
    yield Problem(
        box.user_place or case.server.place,
        said,
        "the image's own user is root unless another is named, and the engine parses what strangers send",
        "set runAsNonRoot: true and runAsUser: 10001, and a writable HOME for caches"
        if case.server.pod is not None
        else "set user 10001:10001",
        {},
        None if box.user == "root" else "advice",
    )
