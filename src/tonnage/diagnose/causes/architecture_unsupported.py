"""This release, or its transformers, does not know the model."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "architecture-unsupported"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    kind = sign.words.get("kind", "this architecture")
    release = f"vLLM {start.release}" if start.release else "this image"
    return Told(
        f"{release} does not know {kind}: the model is younger than the image",
        "use a later release of the engine; do not switch on trust-remote-code for it",
    )
