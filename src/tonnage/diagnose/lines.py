"""Bytes of a log -> lines, whatever wrapped them: gzip, Docker's JSON, containers' prefixes, colours; in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, Any

import msgspec

LONGEST = 16_384
"""Bytes of one line that are read; the rest of it is skipped."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AROUND = re.compile(
    r"^(?:"
    r"\[pod/[^\]]+\] "  # kubectl logs --prefix
    r"|[A-Za-z0-9][A-Za-z0-9_.@-]* +\| ?"  # docker compose, swarm
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+) (?:(?:stdout|stderr) [FP] )?"  # --timestamps, CRI
    r"|(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} )?[\w.-]+ [\w.@/-]+\[[0-9]+\]: "  # journald
    r"|[0-9]{1,4}: (?=[(IEWDT])"  # srun
    r")"
)
_NEAR = re.compile(r".{1,100}?(?=\([A-Za-z]\w*(?: [\w ]+)? pid=[0-9]+|(?:INFO|ERROR|WARNING|DEBUG|CRITICAL) [0-9]{2}-[0-9]{2} [0-9]{2}:)")
_WHEN = re.compile(r"[0-9]{4}-([0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})")
_PLAIN = ("(", "INFO ", "ERROR ", "WARNING ", "DEBUG ", "[20", "Traceback", "  ")
"""Beginnings around which nothing stands."""
LEVELS = ("INFO ", "ERROR ", "WARNING ", "DEBUG ", "CRITICAL ")
LONGEST_PROCESS = 100
MOST_AROUND = 4
"""How many wrappers may stand around a line: kubectl, compose, journald and the runtime's clock."""
_SGLANG = re.compile(r"\[([0-9]{4})-([0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})(?: ([A-Z0-9 ]{2,20}))?\] ?")
_DAY, _CLOCK = re.compile(r"[0-9]{2}-[0-9]{2}"), re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}")
_DAYS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


class Line(msgspec.Struct):
    """One line: its number in the file, the message without what stood around it, who wrote it, how grave, and when.

    `at` counts seconds from the start of a year, None where the line has no clock; `level` is empty where none is given.
    """

    number: int
    text: str
    process: str = ""
    level: str = ""
    at: int | None = None


def opened(stream: IO[bytes]) -> IO[bytes]:
    """Return the stream, unpacked where it is gzip; it needs `peek`."""
    head = stream.peek(2)[:2] if hasattr(stream, "peek") else b""
    if head == b"\x1f\x8b":
        import gzip

        unpacked: Any = gzip.GzipFile(fileobj=stream)
        unpacked.myfileobj = stream  # closed with it
        return unpacked  # type: ignore[no-any-return]
    return stream


def read_lines(stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line, colours and ends gone; a line of any length costs no more than the longest read.

    A carriage return begins a line of progress again: what it leaves at the end is what is read.
    """
    number = 0
    while raw := stream.readline(LONGEST):
        number += 1
        if not raw.endswith(b"\n"):
            while (rest := stream.readline(LONGEST)) and not rest.endswith(b"\n"):
                pass
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if text[:1] == "{":
            if text.startswith('{"log":'):
                text = _docker(text)
            elif '"message"' in text:
                for part in _structured(text):
                    yield number, part
                continue
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        if "\r" in text:
            text = text.rsplit("\r", 1)[-1]
        yield number, text


def _docker(text: str) -> str:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    inner = value.get("log") if isinstance(value, dict) else None
    return inner.rstrip("\r\n") if isinstance(inner, str) else text


def _structured(text: str) -> list[str]:
    """Return the lines of a record of a JSON formatter: its message as the engine would have written it, and its traceback."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return [text]
    message = value.get("message") if isinstance(value, dict) else None
    if not isinstance(message, str):
        return [text]
    level = str(value.get("level") or value.get("levelname") or "").upper()
    when = next((match for key in ("timestamp", "asctime", "time") if (match := _WHEN.search(str(value.get(key, ""))))), None)
    head = f"{level} {when[1]} {when[2]} [json:0] " if level and when is not None else ""
    trace = value.get("exc_info")
    return [head + message.split("\n")[0], *message.split("\n")[1:], *(trace.split("\n") if isinstance(trace, str) else [])]


def parsed(number: int, text: str) -> Line:
    """Return a line with what stands around its message read.

    >>> parsed(7, "(Worker_TP0 pid=9) INFO 01-22 16:41:34 [gpu_worker.py:375] Available KV cache memory: 42.03 GiB").text
    'Available KV cache memory: 42.03 GiB'
    """
    for _ in range(0 if text[:1] == "(" or text.startswith(_PLAIN) else MOST_AROUND):
        around = _AROUND.match(text)
        if around is None:
            near = _NEAR.match(text) if " pid=" in text or ".py:" in text else None
            text = text[near.end() :] if near is not None else text
            break
        text = text[around.end() :]
        if text.startswith(_PLAIN):
            break
    if text.startswith("["):
        match = _SGLANG.match(text)
        if match is None:
            return Line(number, text)
        return Line(number, text[match.end() :], match[4] or "", "", seconds_of(match[2], match[3]))
    process, rest = "", text
    if text.startswith("("):
        close = text.find(")", 1, LONGEST_PROCESS)
        if close == -1 or not text[1].isalpha():
            return Line(number, text)
        process, rest = text[1:close], text[close + 1 :].lstrip(" ")
        while rest.startswith("(") and " pid=" in rest[:LONGEST_PROCESS] and (close := rest.find(")", 1, LONGEST_PROCESS)) != -1:
            process, rest = rest[1:close], rest[close + 1 :].lstrip(" ")
    if not rest.startswith(LEVELS):
        return Line(number, rest, process)
    parts = rest.split(" ", 4)
    if len(parts) < 4 or len(parts[1]) != 5 or not parts[3].endswith("]"):
        return Line(number, rest, process)
    return Line(number, parts[4] if len(parts) > 4 else "", process, parts[0], seconds_of(parts[1], parts[2][:8]))


@lru_cache(maxsize=64)
def seconds_of(day: str, clock: str) -> int | None:
    """Return the seconds since the year began at `MM-DD` and `HH:MM:SS`; None where these are neither.

    >>> seconds_of("01-01", "00:01:00"), seconds_of("01-xx", "00:01:00")
    (86460, None)
    """
    if _DAY.fullmatch(day) is None or _CLOCK.fullmatch(clock) is None:
        return None
    month = int(day[:2])
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((_DAYS[month - 1] if 1 <= month <= 12 else 0) + int(day[3:])) * 86_400 + hours * 3600 + minutes * 60 + seconds
