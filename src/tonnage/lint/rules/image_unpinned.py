"""The image is whatever its name means that day.

latest, nightly and no tag at all change under running deployments: another release has other defaults, other flags, another
memory budget. A digest is the only name that cannot be moved.

BAD (pod; engine=vllm 0.24):

    spec:
      containers:
        - image: vllm/vllm-openai:latest

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - image: registry.example/vllm-openai:v0.24.0@sha256:5b1d2c3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeeff0
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "image-unpinned"
SEVERITY = "warning"
FORMS = ("docker", "compose", "pod", "values")
MOVING = ("latest", "nightly", "main", "master", "edge", "dev", "stable")


def check(case: Case) -> Iterator[Problem]:
    image = case.server.box.image if case.server.box is not None else None
    if image is None or not image.text or image.unresolved or "@sha256:" in image.text:
        return
    name, colon, tag = image.text.rsplit("/", 1)[-1].partition(":")
    moving = next((word for word in MOVING if tag == word or tag.startswith(f"{word}-") or tag.endswith(f"-{word}")), "")
    if colon and tag and not moving:
        return
    said = f"the image {name}:{tag} moves" if tag else f"the image {name} has no tag, which means latest"
    yield Problem(
        image.place,
        said,
        "the next pull may be another release: other defaults, other flags, another memory budget",
        "pin a release by its digest: NAME:vX.Y.Z@sha256:...",
    )
