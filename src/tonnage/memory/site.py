"""The overhead of a card as its own site measured it: laws, moved by what starts there showed, with their scatter as the band."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.facts.provenance import Banded
from tonnage.facts.site import Correction
from tonnage.memory.overhead import Term
from tonnage.units import counted

REST = "activations"
"""The line that takes what starts tell of all lines together: the largest, and the least certain."""


def corrected(terms: Sequence[Term], site: Sequence[Correction]) -> list[Term]:
    """Return the terms with the corrections that hold here; without any they are as they were.

    Where starts tell all lines together, what is off goes to the activations, and the other charged lines have no band of their own:
    their sum is what was measured.
    """
    by_line = {one.line: one for one in site}
    whole = by_line.get("overhead")
    found = []
    for term in terms:
        one = by_line.get(term.label)  # type: ignore[call-overload]
        if one is not None:
            found.append(_moved(term, one))
        elif whole is not None and term.charged:
            found.append(_moved(term, whole) if term.label == REST else _settled(term))
        else:
            found.append(term)
    return found


def _moved(term: Term, by: Correction) -> Term:
    best = max(0, term.size.best + by.bytes)
    size = Banded(best, max(0, best - by.spread), best + by.spread, "measured", "measured on this site")
    return msgspec.structs.replace(term, size=size, why=f"measured here in {counted(by.starts, 'start')}; {term.why}")


def _settled(term: Term) -> Term:
    size = Banded(term.size.best, term.size.best, term.size.best, "measured", "measured on this site")
    return msgspec.structs.replace(term, size=size)
