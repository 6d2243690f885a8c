"""/dev/shm is there, and too small for the ranks.

BAD (pod; engine=vllm 0.24, tensor_parallel_size=2):

    spec:
      volumes:
        - {name: dshm, emptyDir: {medium: Memory, sizeLimit: 128Mi}}
      containers:
        - volumeMounts:
            - {name: dshm, mountPath: /dev/shm}

GOOD (pod; engine=vllm 0.24, tensor_parallel_size=2):

    spec:
      volumes:
        - {name: dshm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}
      containers:
        - volumeMounts:
            - {name: dshm, mountPath: /dev/shm}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.units import GIB, size

ID = "shm-small"
SEVERITY = "error"
FORMS = ("docker", "compose", "pod", "values")
ENGINES = ("vllm", "sglang", "trtllm")
LEAST = GIB
"""Below this NCCL's buffers of a few ranks do not fit; KServe's template has 1 GiB and works."""


def check(case: Case) -> Iterator[Problem]:
    memory = case.server.box.shared_memory if case.server.box is not None else None
    if memory is None or memory.size is None or memory.size >= LEAST or case.ranks < 2:
        return
    yield Problem(
        memory.place,
        f"/dev/shm of {size(memory.size)} for {case.ranks} ranks",
        "NCCL's buffers and the ranks' queues do not fit: the start hangs or dies with 'No space left on device'",
        "make it 8 GiB, and count it in the memory limit",
    )
