"""The model is looked for on the hub, which is not reached or does not give it."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.diagnose.told import model_of
from tonnage.lint.case import Case

ID = "hub-unreachable"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    text = " ".join(one.text for one in sign.evidence)
    name = model_of(start) or "the model"
    if "gated" in text or "restricted" in text or "401" in text or "403" in text:
        return Told(
            f"the hub refuses {name}: it is gated, and the token has no access",
            "stage the weights once with a token that has, and serve the local folder",
        )
    if "not a valid model identifier" in text:
        return Told(f"{name} is neither a folder that is there nor a name on the hub", "check the path and its mount; serve a local folder")
    return Told(
        f"{name} is a name on the hub, which cannot be reached from here, and the local cache does not hold it",
        "serve a staged local folder with HF_HUB_OFFLINE=1; do not open egress for it",
    )
