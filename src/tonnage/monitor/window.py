"""What happened between two pages of an engine: differences of counters, restarts considered."""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.monitor.page import GAUGES, Engine, Page


class Window(msgspec.Struct, frozen=True):
    """One engine over a time: its gauges now and before, and what its counters grew by.

    `seconds` is 0 and `grew` empty where there is one page only. After a restart counters count from 0, so that what they
    show now is what they grew by.
    """

    engine: Engine
    before: Engine | None
    seconds: float
    grew: dict[str, float]
    restarted: bool = False

    def now(self, name: str) -> float | None:
        """Return a gauge as it stands on the last page."""
        return self.engine.get(name)

    def delta(self, name: str) -> float | None:
        """Return what a counter grew by; None where it is not known."""
        return self.grew.get(name)

    def mean(self, total: str, count: str) -> float | None:
        """Return the mean of what was added to a histogram; of all there is where there is one page; None where nothing was."""
        one = self.before is None
        amount = self.engine.get(total) if one else self.grew.get(total)
        number = self.engine.get(count) if one else self.grew.get(count)
        return amount / number if amount is not None and number else None


def windows(later: Page, before: Page | None, seconds: float) -> list[Window]:
    """Return a window for each engine of the later page.

    Raises InputError: the later page is the earlier one, by its counters and by when the process began.
    """
    found = []
    for engine in later.engines:
        old = before.engine(engine.label) if before is not None else None
        if old is None:
            found.append(Window(engine, None, 0.0, {}))
            continue
        began_anew = (
            before is not None and before.began_at is not None and later.began_at is not None and later.began_at > before.began_at + 1
        )
        pairs = {
            name: (old.get(name), value)
            for name, value in engine.figures.items()
            if name not in GAUGES and value is not None and old.get(name) is not None
        }
        fell = any(was is not None and now < was for was, now in pairs.values())
        both = before is not None and before.began_at is not None and later.began_at is not None
        earlier = both and (later.began_at or 0) < ((before and before.began_at) or 0) - 1
        if earlier or (both and fell and not began_anew):
            raise InputError("counters fell, and no later start of the process explains it", hint="are the pages in the wrong order?")
        restarted = began_anew or fell
        grew = {name: now if restarted else now - (was or 0.0) for name, (was, now) in pairs.items()}
        found.append(Window(engine, old, seconds, grew, restarted))
    return found
