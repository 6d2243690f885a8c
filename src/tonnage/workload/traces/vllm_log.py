"""vLLM's own log: when requests were received, and where its version says so, their token ids and their ends.

Texts of prompts stand in these lines; a line is looked through for its figures and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from tonnage.errors import InputError
from tonnage.workload.trace import Trace
from tonnage.workload.traces.columns import Columns
from tonnage.workload.traces.fields import Field

BEGINS = ("Received request ", "Added request ")
ENDS = ("Generated response ", "Finished request ")
_SAYS = re.compile(r"(Received request|Added request|Generated response|Finished request) ([\w.-]+)")
_CLOCK = re.compile(r"(?<![\d-])(?:(\d{4})-)?(\d\d)-(\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?")
HALF_A_YEAR_S, YEAR_S = 183 * 86_400, 365 * 86_400


class Event(msgspec.Struct, frozen=True):
    """What a line says of a request: received, added or ended, when, and how many token ids it lists (None for none)."""

    said: str
    request: str
    at_s: float
    dated: bool
    tokens: int | None


def says_requests(text: str) -> bool:
    """Return whether a line of a log tells of a request."""
    return any(word in text for word in (*BEGINS, *ENDS))


def event_of(text: str) -> Event | None:
    """Return what a line says of a request, None where it says nothing or has no time before it.

    >>> event_of("INFO 02-13 11:33:33 [async_llm.py:382] Added request chatcmpl-a2-a8.").request
    'chatcmpl-a2-a8'
    """
    match = _SAYS.search(text)
    clock = None if match is None else _CLOCK.search(text, 0, match.start())
    if match is None or clock is None:
        return None
    year, month, day, time, zone = clock.groups()
    try:
        at = _seconds(f"{year or 1970}-{month}-{day}T{time.replace(',', '.')}{zone or ''}")
    except ValueError:
        return None
    said = match[1].split()[0].lower()
    counted = (
        _ids(text, "prompt_token_ids: [" if said == "received" else "output_token_ids: [") if said in ("received", "generated") else None
    )
    return Event("ended" if said in ("generated", "finished") else said, match[2].rstrip("."), at, year is not None, counted)


def _seconds(text: str) -> float:
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _ids(text: str, begins: str) -> int | None:
    """Return how many ids a list holds; the last list of that name, since a prompt may quote one."""
    start = text.rfind(begins)
    end = text.find("]", start)
    if start == -1 or end == -1:
        return None
    inside = text[start + len(begins) : end]
    return inside.count(",") + 1 if inside.strip() else None


def read_vllm_log(lines: Iterable[tuple[int, str]], where: str) -> Trace:
    """Return the requests that a log of vLLM tells of.

    Raises InputError: it tells of none.
    """
    rows, added = _rows(lines)
    sized = bool(rows) and all(row.prompt is not None for row in rows.values())
    answered = sized and all(row.output is not None for row in rows.values() if row.end_s == row.end_s)
    ended = any(row.end_s == row.end_s for row in rows.values())
    taken = [row for row in rows.values() if not (sized and answered and ended) or row.end_s == row.end_s]
    fields = {"arrival": Field("", "s")} | ({"prompt": Field("")} if sized else {}) | ({"end": Field("", "s")} if ended else {})
    if sized and answered and ended:
        fields["output"] = Field("")
    columns = Columns("vllm-log", fields)
    columns.clock.kind = "relative"
    for row in taken or [Row(line, at) for line, at in added]:
        columns.arrival.append(row.at_s)
        columns.end.append(max(row.end_s, row.at_s) if row.end_s == row.end_s else row.end_s)
        columns.prompt.append(row.prompt or 0)
        columns.output.append(row.output or 0)
        columns.cached.append(-1)
    if not columns.arrival:
        raise InputError(
            "no line of it says `Received request` or `Added request`",
            where=where,
            hint="start vLLM with --enable-log-requests, or give a gateway's log",
        )
    unended = sum(row.end_s != row.end_s for row in rows.values()) if ended else 0
    if unended and len(taken) < len(rows):
        columns.reasons["the log does not tell its end"] = unended
    remarks = ["prompt lengths are counted from the token ids in the log; --max-log-len cuts them"] if sized else []
    trace = columns.trace(where, remarks=remarks)
    first = min(columns.arrival)
    return msgspec.structs.replace(trace, epoch_s=first, dated=first >= YEAR_S * 2)


class Row(msgspec.Struct):
    """A request as far as it is known."""

    line: int
    at_s: float
    prompt: int | None = None
    output: int | None = None
    end_s: float = float("nan")


def _rows(lines: Iterable[tuple[int, str]]) -> tuple[dict[str, Row], list[tuple[int, float]]]:
    """Return the requests received, by id, and when requests were added, for logs that say only that."""
    rows: dict[str, Row] = {}
    added: list[tuple[int, float]] = []
    for number, event in _events(lines):
        if event.said == "received":
            rows[event.request] = Row(number, event.at_s, event.tokens)
        elif event.said == "added":
            added.append((number, event.at_s))
        else:
            row = rows.get(event.request)
            if row is not None:
                row.end_s, row.output = event.at_s, event.tokens if event.tokens is not None else row.output
    return rows, added


def _events(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Event]]:
    """Yield the events with times that run on over the end of a year that is not written."""
    last, years = 0.0, 0
    for number, text in lines:
        event = event_of(text) if says_requests(text) else None
        if event is None:
            continue
        if not event.dated and last - event.at_s > HALF_A_YEAR_S:
            years += 1
        last = event.at_s
        yield number, event if event.dated or not years else msgspec.structs.replace(event, at_s=event.at_s + years * YEAR_S)
