"""How one file writes its times: ISO 8601, an access log's, seconds since 1970 in some unit, or seconds from its start."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
FIRST_EPOCH_S = 1e8
"""A number of seconds from here on is a date (1973 and later); below, it counts from the start of the log."""
LAST_EPOCH_S = 1e11
EPOCH = datetime(1970, 1, 1)

_ACCESS = re.compile(r"\[?(\d{1,2})/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-])(\d\d):?(\d\d))?\]?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Clock:
    """Times of one column. The first time decides how all are written; one written otherwise is refused (ValueError).

    >>> Clock().seconds("1970-01-01 00:01:00.5"), Clock().seconds(1_700_000_000_250), Clock("ms").seconds("1500")
    (60.5, 1700000000.25, 1.5)
    """

    def __init__(self, unit: str = "") -> None:
        self.unit = unit
        self.kind = ""

    @property
    def dated(self) -> bool:
        """Whether times are moments since 1970; otherwise they count from the start of the log."""
        return self.kind in ("text", "epoch")

    def seconds(self, value: Any) -> float:
        """Return a time in seconds.

        Raises ValueError: no time, or one in another form than the first of the file.
        """
        if self.kind == "text" and type(value) is str:
            return _from_text(value)
        number = _number(value)
        if number is None:
            seconds, kind = _from_text(value), "text"
        elif number < 0:
            raise ValueError("its time is negative")
        else:
            self.unit = self.unit or _unit_of(number)
            seconds = number * SCALES[self.unit]
            kind = "relative" if seconds < FIRST_EPOCH_S else "epoch" if seconds < LAST_EPOCH_S else "beyond"
        if kind == "beyond":
            raise ValueError("its time is beyond the year 5000")
        if not self.kind:
            self.kind = kind
        elif kind != self.kind:
            raise ValueError("its time is written in another way than the first")
        return seconds


def _number(value: Any) -> float | None:
    """Return a number, also one written as text; None for what is no number."""
    if isinstance(value, bool) or value is None:
        raise ValueError("it has no time")
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("its time is no finite number")
    return number


def _unit_of(number: float) -> str:
    """Return the unit in which a number is a moment of our days; seconds where it is none.

    >>> _unit_of(1.7e9), _unit_of(1.7e12), _unit_of(1.7e15), _unit_of(1.7e18), _unit_of(3600)
    ('s', 'ms', 'us', 'ns', 's')
    """
    return next((unit for least, unit in ((1e17, "ns"), (1e14, "us"), (1e11, "ms")) if number >= least), "s")


def _from_text(value: Any) -> float:
    if type(value) is not str:
        raise ValueError("its time is no time")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = _unusual(value.strip())
    return (moment - EPOCH).total_seconds() if moment.tzinfo is None else moment.timestamp()


def _unusual(text: str) -> datetime:
    """Return the moment of an access log's time, or of ISO 8601 with `UTC` behind it."""
    match = _ACCESS.fullmatch(text)
    try:
        if match is None:
            return datetime.fromisoformat(re.sub(r" ?(?:UTC|GMT)$", "+00:00", text))
        zone = timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
        month = _MONTHS.index(match[2]) + 1
        offset = timezone(-zone if match[7] == "-" else zone)
        return datetime(int(match[3]), month, int(match[1]), int(match[4]), int(match[5]), int(match[6]), tzinfo=offset)
    except ValueError:
        raise ValueError("its time is no time") from None


def span_reader(unit: str) -> Callable[[Any], float]:
    """Return a function from a duration in `unit` to seconds; it raises ValueError for what is no duration."""
    scale = SCALES[unit]

    def seconds(value: Any) -> float:
        number = _number(value)
        if number is None or number < 0:
            raise ValueError("its duration is no number of at least 0")
        return number * scale

    return seconds
