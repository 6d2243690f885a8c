"""Ranks that talk through shared memory get the container's 64 MB of it.

Tensor and pipeline parallel ranks, and NCCL between them, use /dev/shm. A container has 64 MB unless told otherwise: the start
hangs, or dies with "No space left on device" that means neither the disk nor the card.

BAD (pod; engine=vllm 0.24, tensor_parallel_size=2):

    spec:
      volumes: []
      containers:
        - volumeMounts: []

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

ID = "shm-missing"
SEVERITY = "error"
FORMS = ("docker", "compose", "pod", "values")
ENGINES = ("vllm", "sglang", "trtllm")


def check(case: Case) -> Iterator[Problem]:
    box = case.server.box
    if box is None or case.ranks < 2 or box.shared_memory is not None or box.host_ipc is not None:
        return
    flag = case.server.flag("--tensor-parallel-size", "--tp-size", "--tp_size", "--pipeline-parallel-size", "--data-parallel-size")
    yield Problem(
        flag.place if flag is not None else case.server.place,
        f"{case.ranks} ranks share the container's default /dev/shm of 64 MB",
        "NCCL and the ranks' queues need more: the start hangs or dies with 'No space left on device'",
        FIX[case.server.form],
    )


FIX = {
    "docker": "add --shm-size 8g",
    "compose": "add shm_size: 8gb",
    "pod": "mount an emptyDir with medium: Memory, sizeLimit 8Gi, at /dev/shm, and count it in the memory limit",
    "values": "mount an in-memory /dev/shm: production-stack does where vllmConfig.tensorParallelSize is set (not in extraArgs)",
}
