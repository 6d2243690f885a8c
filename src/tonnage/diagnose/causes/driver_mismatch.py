"""The host's driver and the image's CUDA do not go together."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "driver-mismatch"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    text = sign.evidence[0].text
    version = sign.words.get("driver", "")
    known = f" (it speaks CUDA {int(version) // 1000}.{int(version) % 1000 // 10})" if version.isdigit() else ""
    if "no kernel image" in text:
        return Told(
            "the image holds no kernels for this card's compute capability",
            "use an image built for this card, or a card that the image is built for",
        )
    if "version mismatch" in text:
        return Told(
            "the driver's kernel module and its libraries are of two versions: it was updated under a running system",
            "reboot the node, or reload the module",
        )
    return Told(
        f"the host's NVIDIA driver{known} is older than the CUDA of the image",
        "update the driver on the node, or use an image built for its CUDA",
    )
