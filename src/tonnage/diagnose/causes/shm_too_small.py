"""/dev/shm is too small for the ranks that talk through it."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "shm-too-small"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    ranks = case.ranks
    return Told(
        f"{ranks if ranks > 1 else 'the'} ranks share a /dev/shm that is full: a container has 64 MB unless told "
        "otherwise. 'No space left on device' "
        "means shared memory here, neither the disk nor the card",
        "mount an in-memory volume at /dev/shm (Kubernetes: emptyDir, medium Memory, 8Gi, counted in the memory "
        "limit; Docker: --shm-size 8g)",
    )
