"""Where a log keeps what we ask of it: names given with `--map`, or those that loggers are known to use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tonnage.errors import InputError, closest_hint
from tonnage.workload.traces.clock import SCALES

NAMES = ("arrival", "prompt", "output", "end", "duration", "cached", "hashes")
"""What a row may tell: when it came, tokens in and out, when it ended or how long it took, tokens found in a cache, block hashes."""

NEEDS = "a row needs a time (arrival), and for sizes tokens in (prompt) and out (output)"
MAP_HINT = "name the columns: --map arrival=ts,prompt=in_tokens,output=out_tokens,duration=latency_ms"

ALIASES: dict[str, tuple[str, ...]] = {
    "arrival": (
        "arrival", "arrivaltime", "arrivedat", "arrivals", "starttime", "startedat", "start", "requesttimestamp", "timestamp", "ts", "time",
        "timelocal", "timeiso8601", "datetime", "createdat", "created", "responsecreated", "responsebodycreated", "bodycreated", "msec",
    ),
    "prompt": (
        "contexttokens", "prompttokens", "inputtokens", "inputlength", "inputtoks", "promptlength", "promptlen", "inputlen", "intokens",
        "numprompttokens", "requesttokens", "tokensin", "usageprompttokens", "usageinputtokens", "responseusageprompttokens",
        "responseusageinputtokens", "responsebodyusageprompttokens", "responsebodyusageinputtokens", "bodyusageprompttokens",
        "bodyusageinputtokens",
    ),
    "output": (
        "generatedtokens", "completiontokens", "outputtokens", "outputlength", "outputtoks", "outputlen", "outtokens", "generationtokens",
        "numgenerationtokens", "responsetokens", "tokensout", "usagecompletiontokens", "usageoutputtokens",
        "responseusagecompletiontokens", "responseusageoutputtokens", "responsebodyusagecompletiontokens",
        "responsebodyusageoutputtokens", "bodyusagecompletiontokens", "bodyusageoutputtokens",
    ),
    "end": ("end", "endtime", "endedat", "finishedat", "finishtime", "completedat"),
    "duration": (
        "duration", "durations", "durationms", "durationseconds", "latency", "latencys", "latencyms", "latencyseconds", "elapsed",
        "elapseds", "elapsedms", "responsetimems", "responsetimes", "requesttime", "requesttimes", "requesttimems", "e2elatency",
        "e2elatencyms", "e2elatencys", "e2es", "e2ems", "totaltimems", "totaltimes",
    ),
    "cached": (
        "usageprompttokensdetailscachedtokens", "usageinputtokensdetailscachedtokens", "responseusageprompttokensdetailscachedtokens",
        "responseusageinputtokensdetailscachedtokens", "responsebodyusageprompttokensdetailscachedtokens",
        "responsebodyusageinputtokensdetailscachedtokens", "bodyusageprompttokensdetailscachedtokens",
        "prompttokensdetailscachedtokens", "inputtokensdetailscachedtokens", "cachedtokens", "numcachedtokens",
    ),
    "hashes": ("hashids", "blockhashes"),
}  # fmt: skip
"""By name without case and punctuation, the surest first."""

_UNIT = re.compile(r"(?:[_.-](ms|millis|msec|us|ns|s|secs?|seconds)|(?<=[a-z])(Ms|Millis|Us|Ns|Secs?|Seconds)|(seconds|millis))$")
_UNITS = {"millis": "ms", "msec": "ms", "sec": "s", "secs": "s", "seconds": "s"}
_PLAIN = re.compile(r"[A-Za-z_@$][\w.@$/-]{0,39}")


class Field(msgspec.Struct, frozen=True):
    """A column by its name, or a value by its dotted path, and the unit its numbers are in ("" where it is to be seen)."""

    path: str
    unit: str = ""


def read_map(text: str, where: str = "--map") -> dict[str, Field]:
    """Return the fields of a map like `arrival=ts,prompt=in_tokens,duration=latency:ms`.

    >>> read_map("arrival=ts:ms,prompt=usage.prompt_tokens,duration=took_ms")["duration"]
    Field(path='took_ms', unit='ms')

    Raises InputError: an entry without `=`, a name that is none of ours, a unit nobody knows, a duration without one.
    """
    fields = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, path = entry.partition("=")
        name, path = name.strip(), path.strip()
        if not equals or not path:
            raise InputError(f"{entry!r} is no entry of a map", where=where, hint=MAP_HINT)
        if name not in NAMES:
            raise InputError(
                f"{name} is nothing that we ask for", where=where, hint=closest_hint(name, NAMES, f"known are {', '.join(NAMES)}")
            )
        path, colon, unit = path.rpartition(":") if ":" in path else (path, "", "")
        if colon and unit not in SCALES:
            raise InputError(f"{name} is in {unit!r}, no unit that we know", where=where, hint=f"known are {', '.join(SCALES)}")
        if name == "duration" and not (unit or _suffix(path)):
            raise InputError(f"the unit of {path} is not known", where=where, hint=f"write it like duration={path}:ms")
        fields[name] = Field(path, unit or (_suffix(path) if name == "duration" else ""))
    return fields


def _suffix(path: str) -> str:
    """Return the unit that a name ends in, "" where it ends in none.

    >>> _suffix("latency_ms"), _suffix("latencySeconds"), _suffix("latency"), _suffix("ContextTokens")
    ('ms', 's', '', '')
    """
    match = _UNIT.search(path)
    unit = next(filter(None, match.groups())).lower() if match is not None else ""
    return _UNITS.get(unit, unit)


def find_fields(columns: Iterable[str], given: Mapping[str, Field], where: str) -> tuple[dict[str, Field], tuple[str, ...]]:
    """Return the fields of a log with these columns, and what is to be said of them. What was given goes before what is known.

    Raises InputError: a column that was named and is not there, or none that holds a time.
    """
    listed = list(dict.fromkeys(columns))
    plain: dict[str, str] = {}
    for column in listed:
        plain.setdefault(re.sub(r"[^a-z0-9]", "", column.lower()), column)
    for field in given.values():
        if field.path not in listed:
            raise InputError(
                f"there is no column {field.path}", where=where, hint=closest_hint(field.path, shown(listed), _there_are(listed))
            )
    fields, remarks = dict(given), []
    for name, aliases in ALIASES.items():
        taken = {field.path for field in fields.values()}
        column = next((plain[alias] for alias in aliases if alias in plain and plain[alias] not in taken), "")
        if name in given or not column or (name in ("end", "duration") and {"end", "duration"} & given.keys()):
            continue
        unit = _suffix(column) or ("s" if column.lower() == "request_time" else "")
        if name == "duration" and not unit:
            remarks.append(f"{column} is not used: its unit is not known; --map duration={column}:ms takes it")
            continue
        fields[name] = Field(column, unit if name == "duration" or unit in ("ms", "us", "ns") else "")
    if "end" in fields and "duration" in fields and "arrival" in fields:
        del fields["duration"]
    begun = fields.get("arrival")
    if "duration" in fields and begun is not None and "arrival" not in given and not re.search("start|arriv|begin", begun.path.lower()):
        remarks.append(f"{begun.path} is read as the start of a request; if it is written at the end: --map end={begun.path}")
    if "arrival" not in fields and not {"end", "duration"} <= fields.keys():
        raise InputError("no column holds the time of a request", where=where, hint=f"{_there_are(listed)}; {MAP_HINT}")
    return fields, tuple(remarks)


def shown(columns: Iterable[str]) -> list[str]:
    """Return the names that look like names: a file without a header must not have its first row repeated."""
    return [column for column in columns if _PLAIN.fullmatch(column)]


def _there_are(columns: list[str]) -> str:
    names = shown(columns)
    return f"there are {', '.join(names[:12])}" + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else NEEDS


def flattened(value: Mapping[str, Any], before: str = "", depth: int = 4) -> Iterable[str]:
    """Yield the dotted paths of what an object holds.

    >>> list(flattened({"id": 1, "usage": {"prompt_tokens": 3}}))
    ['id', 'usage.prompt_tokens']
    """
    for key, inner in value.items():
        if isinstance(inner, dict) and depth > 1:
            yield from flattened(inner, f"{before}{key}.", depth - 1)
        else:
            yield f"{before}{key}"


def picked(value: Any, path: str, steps: tuple[str, ...]) -> Any:
    """Return what stands at a path, None where nothing does; a key with dots in it goes first.

    >>> picked({"usage": {"prompt_tokens": 3}}, "usage.prompt_tokens", ("usage", "prompt_tokens"))
    3
    """
    if path in value:
        return value[path]
    for step in steps:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
