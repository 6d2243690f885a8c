"""The weights are downloaded again at every start.

A model from the hub goes into the container's own file system, or into a volume that ends with the pod: each restart, each new
node downloads it again, which takes minutes and needs the hub at the worst moment.

BAD (pod; engine=vllm 0.24, also=hub-model):

    spec:
      containers:
        - args: [--model, Qwen/Qwen3-8B, --served-model-name=m-8b-v1, --max-num-seqs=16]

GOOD (pod; engine=vllm 0.24):

    spec:
      containers:
        - args: [--model, /models/qwen3-8b, --served-model-name=m-8b-v1, --max-num-seqs=16]
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "cache-not-kept"
SEVERITY = "advice"
FORMS = ("docker", "compose", "pod")
ENGINES = ("vllm", "sglang")
HOMES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME")
DEFAULT = "/root/.cache/huggingface"
"""Where the hub's client keeps models inside the engines' images, which run as root unless told otherwise."""


def check(case: Case) -> Iterator[Problem]:
    server, box = case.server, case.server.box
    if box is None or not case.from_hub or server.model is None:
        return
    folder = server.text("--download-dir") or next((server.environment[name].text for name in HOMES if name in server.environment), DEFAULT)
    holding = [
        mount
        for mount in box.mounts
        if folder == mount.path or folder.startswith(mount.path.rstrip("/") + "/") or mount.path.startswith(folder)
    ]
    kept = [mount for mount in holding if mount.kind not in ("emptyDir", "tmpfs", "ephemeral")]
    homed = any("cache" in mount.path or "huggingface" in mount.path or mount.path in ("/root", "/home") for mount in box.mounts)
    if kept or (homed and not holding) or "$" in folder:
        return
    behind = "a volume that ends with the pod" if holding else "the container's own file system"
    yield Problem(
        holding[0].place if holding else server.model.place,
        f"{server.model.text} is downloaded into {behind}",
        "every restart downloads it again: minutes, and the hub at the worst moment",
        "serve a staged local folder, or keep the cache on a volume",
    )
