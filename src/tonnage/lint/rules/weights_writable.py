"""The engine can write where its weights lie.

A serving process has no business there: whoever takes it over can exchange the model for all replicas, and no hash that was
checked before holds any more.

BAD (pod; engine=vllm 0.24):

    spec:
      volumes:
        - {name: weights, persistentVolumeClaim: {claimName: weights}}
      containers:
        - volumeMounts:
            - {name: weights, mountPath: /models}

GOOD (pod; engine=vllm 0.24):

    spec:
      volumes:
        - {name: weights, persistentVolumeClaim: {claimName: weights, readOnly: true}}
      containers:
        - volumeMounts:
            - {name: weights, mountPath: /models, readOnly: true}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "weights-writable"
SEVERITY = "warning"
FORMS = ("docker", "compose", "pod")


def check(case: Case) -> Iterator[Problem]:
    path, box = case.model_text, case.server.box
    if box is None or not path.startswith("/"):
        return
    around = [mount for mount in box.mounts if path == mount.path or path.startswith(mount.path.rstrip("/") + "/")]
    if not around:
        return
    mount = max(around, key=lambda one: len(one.path))
    if not mount.read_only:
        fix = "add readOnly: true" if case.server.form == "pod" else f"mount it read-only: ...:{mount.path}:ro"
        yield Problem(
            mount.place,
            f"the weights at {mount.path} are mounted writable",
            "a taken-over engine can exchange the model for every replica",
            fix,
        )
