"""The engine does not know a flag it was given, or its value."""

from __future__ import annotations

import re

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.facts.flags import every_flag, flag_releases
from tonnage.lint.case import Case
from tonnage.settings.argv import positive, unknown_flag

ID = "flag-unknown"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    if "value" in sign.words:
        return Told(
            f"{sign.words['flags'].rstrip(':')} does not take {sign.words['value']} in this release",
            "use one of the values that the line lists",
        )
    flags = re.findall(r"(?<!\S)-{1,2}[A-Za-z][\w-]*", sign.words.get("flags", sign.words.get("short", "")))
    release = case.release or flag_releases()[-1]
    said = [_said(flag, release, known=case.release is not None) for flag in flags]
    return Told(
        "; ".join(said) or "the command holds a word that no flag takes",
        f"drop {' and '.join(flags)}, or run a release that has {'it' if len(flags) == 1 else 'them'}"
        if flags
        else "quote or drop the word",
    )


def _said(flag: str, release: tuple[int, int], *, known: bool) -> str:
    plain = flag.replace("_", "-")
    fact = every_flag().get(positive(plain))
    if fact is not None and fact.last is not None and not known:
        return f"{flag}: known from {fact.first} to {fact.last}"
    return unknown_flag(plain, release)
