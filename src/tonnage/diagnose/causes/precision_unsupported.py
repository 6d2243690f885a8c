"""The card cannot run the number format."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "precision-unsupported"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    text = sign.evidence[0].text
    if "Bfloat16" in text or "bfloat16" in text:
        card = sign.words.get("card", "the card")
        told = "--dtype bfloat16 forces it" if start.arguments.get("dtype") == "bfloat16" else "the checkpoint asks for it"
        return Told(
            f"{card} has compute capability {sign.words.get('have', 'below 8.0')} and no bfloat16, which needs 8.0; {told}",
            "use --dtype half (check the model in float16), or a card of Ampere or later",
        )
    if "method" in sign.words:
        return Told(
            f"{sign.words['method']} needs compute capability {_point(sign.words['least'])}; this card has {_point(sign.words['current'])}",
            "use a checkpoint in another precision, or a card that has it",
        )
    if "float16" in text:
        return Told("this model overflows in float16, and the engine refuses it", "use bfloat16 on a card of 8.0 or later, or float32")
    return Told(
        "the card has no kernels for the precision that is asked for",
        "use a checkpoint or cache in another precision, or a card that has it",
    )


def _point(capability: str) -> str:
    return f"{capability[:-1]}.{capability[-1]}" if len(capability) > 1 else capability
