"""A plan as a compose file: pinned image, read-only weights, a closed network, no published port."""

from __future__ import annotations

import re
from typing import Any

from tonnage.errors import InputError
from tonnage.render.choices import Site
from tonnage.render.command import chosen, comments, heading, words
from tonnage.render.plan_file import PlanFile
from tonnage.render.startup import startup_s

DIGEST = re.compile(r"^[^\s@]+@sha256:[0-9a-f]{64}$")


def pinned(image: str) -> str:
    """Return an image that is pinned by its digest.

    Raises InputError: a tag, which may be another image tomorrow.
    """
    if not DIGEST.match(image):
        said = f"{image!r} is not pinned by a digest" if image else "an image is needed, pinned by its digest"
        hint = "like registry.example/vllm-openai@sha256:<64 hex digits>; a tag may be another image tomorrow"
        raise InputError(said, where="--image", hint=hint)
    return image


def compose_text(made: PlanFile, site: Site, image: str) -> str:
    """Return the compose file."""
    import yaml

    start = startup_s(made)
    probe = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{site.port}/health', timeout=10)"
    engine: dict[str, Any] = {
        "image": pinned(image),
        "entrypoint": words(made, site)[:2],
        "command": words(made, site)[2:],
        "environment": {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CACHE_ROOT": "/cache"},
        "volumes": [f"{site.model}:{site.model}:ro", "compile-cache:/cache"],
        "shm_size": "16gb",
        "ulimits": {"memlock": -1, "nofile": {"soft": 65536, "hard": 65536}},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "networks": ["engine"],
        "restart": "unless-stopped",
        "stop_grace_period": "120s",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "30s",
            "timeout": "15s",
            "retries": 4,
            "start_period": f"{start}s",
        },
        **_devices(made),
    }
    value = {"services": {"engine": engine}, "networks": {"engine": {"internal": True}}, "volumes": {"compile-cache": {}}}
    notes = [
        "# no port is published: put the gateway on the network `engine`",
        "# shm_size: the default of 64 MB hangs tensor parallelism",
        f"# start_period: {start} s, from the weights at an assumed 0.5 GiB/s, twice, and {180} s to compile",
    ]
    head = [*heading(made, "vllm"), *comments(chosen(made, site)), *notes]
    return "\n".join(head) + "\n" + yaml.safe_dump(value, sort_keys=False, width=120)


def _devices(made: PlanFile) -> dict[str, Any]:
    """Return how a container gets the cards: reserved by count, or AMD's device files."""
    if made.card.vendor == "AMD":
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video", "render"]}
    if made.card.vendor != "NVIDIA":
        raise InputError(f"compose knows no way to give a container {made.card.vendor} cards", where="plan.json", hint="--to vllm")
    reserved = {"driver": "nvidia", "count": made.settings.parallel.cards, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}
