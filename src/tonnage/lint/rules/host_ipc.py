"""The container shares the host's memory segments and semaphores.

It is done for a large /dev/shm, which an in-memory volume or --shm-size gives without it. With it any process of the
host's same user can read what the ranks pass each other.

BAD (pod; engine=vllm 0.24):

    spec: {hostIPC: true}

GOOD (pod; engine=vllm 0.24):

    spec: {hostIPC: false}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "host-ipc"
SEVERITY = "warning"
FORMS = ("docker", "compose", "pod")


def check(case: Case) -> Iterator[Problem]:
    place = case.server.box.host_ipc if case.server.box is not None else None
    if place is None:
        return
    pod = case.server.pod is not None
    yield Problem(
        place,
        "hostIPC is on" if pod else "the host's IPC is shared",
        "processes of the host can read what the engine's ranks pass each other",
        "mount an emptyDir with medium: Memory at /dev/shm instead" if pod else "use --shm-size (shm_size) instead",
        {},
        None if pod else "advice",
    )
