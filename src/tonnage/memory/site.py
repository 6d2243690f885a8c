"""The overhead of a card as its own site measured it: laws, moved by what starts there showed, with their scatter as the band."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.facts.provenance import Banded
from tonnage.facts.site import Correction
from tonnage.memory.overhead import Term
from tonnage.units import counted


def corrected(terms: Sequence[Term], site: Sequence[Correction]) -> list[Term]:
    """Return the terms with the corrections that hold here; without any they are as they were.

    Where starts tell all lines together, the charged lines are one line: their sum is what was measured.
    """
    by_line: dict[str, Correction] = {one.line: one for one in site}
    whole = by_line.get("overhead")
    if whole is None or any(term.label in by_line for term in terms):
        return [_moved(term, one) if (one := by_line.get(term.label)) is not None else term for term in terms]
    charged = [term for term in terms if term.charged]
    labels = ", ".join(term.label for term in charged if term.size.best)
    best = sum(term.size.best for term in charged)
    together = Term("overhead", Banded(best, best, best, "measured", "measured on this site"), f"all of it: {labels}", True)
    return [_moved(together, whole), *(term for term in terms if not term.charged)]


def _moved(term: Term, by: Correction) -> Term:
    best = max(0, term.size.best + by.bytes)
    size = Banded(best, max(0, best - by.spread), best + by.spread, "measured", "measured on this site")
    return msgspec.structs.replace(term, size=size, why=f"measured here in {counted(by.starts, 'start')}; {term.why}")
