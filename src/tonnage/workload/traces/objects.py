"""JSON lines: Mooncake's traces, usage logs of the OpenAI API, access logs of gateways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.workload.trace import Trace
from tonnage.workload.traces.columns import Columns
from tonnage.workload.traces.fields import MAP_HINT, Field, find_fields, flattened, picked

MOONCAKE = {
    "arrival": Field("timestamp", "ms"), "prompt": Field("input_length"), "output": Field("output_length"), "hashes": Field("hash_ids"),
}  # fmt: skip
HEAD = 50
"""Objects whose keys are looked at before a row is taken: a key may be missing in the first."""


def decoded(text: str) -> dict[str, Any] | None:
    """Return the object that a line holds, None for a line that holds none."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def form_of(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return which format objects are: mooncake, usage, or gateway for any other.

    >>> form_of([{"ts": 1, "usage": {"prompt_tokens": 3}}]), form_of([{"timestamp": 0, "input_length": 3, "output_length": 1}])
    ('usage', 'mooncake')
    """
    keys = {path for value in objects for path in flattened(value)}
    if {"timestamp", "input_length", "output_length"} <= keys:
        return "mooncake"
    return "usage" if any("usage." in path for path in keys) else "gateway"


def read_objects(
    lines: Iterable[tuple[int, str]], given: Mapping[str, Field], where: str, *, form: str = "", block_tokens: int = 0
) -> Trace:
    """Return the trace of a log of one JSON object a line.

    Raises InputError: no object at all, a path that is missing, no row that can be read.
    """
    stream = iter(lines)
    head: list[tuple[int, str]] = []
    objects: list[dict[str, Any]] = []
    for number, text in stream:
        head.append((number, text))
        value = decoded(text)
        if value is not None:
            objects.append(value)
        if len(head) == HEAD:
            break
    if not objects:
        raise InputError("holds no JSON object in its first lines", where=where, hint="one object a line: jq -c '.[]' makes them of a list")
    form = form or form_of(objects)
    known = {path for value in objects for path in flattened(value)}
    asked = dict(given)
    seconds = form == "mooncake" and "arrival" not in given and any(_fraction(value.get("timestamp")) for value in objects)
    if form == "mooncake":
        asked = {name: field for name, field in MOONCAKE.items() if name != "hashes" or field.path in known} | asked
    whole = {field.path for field in given.values() if any(picked(v, field.path, _steps(field.path)) is not None for v in objects)}
    fields, remarks = find_fields(sorted(known | whole), asked, where)
    if seconds:
        fields["arrival"] = Field("timestamp", "s")
        remarks = (*remarks, "its timestamps have fractions and are read as seconds; --map arrival=timestamp:ms says otherwise")
    if form == "usage" and not {"prompt", "output"} & fields.keys():
        raise InputError("no usage holds prompt_tokens or completion_tokens", where=where, hint=MAP_HINT)
    columns = Columns(form, fields)
    places = [(name, field.path, _steps(field.path)) for name, field in fields.items()]
    for part in (head, stream):
        for number, text in part:
            value = decoded(text)
            if value is not None:
                columns.add(number, {name: picked(value, path, steps) for name, path, steps in places})
            elif text and not text.isspace():
                columns.skip(number, "it is no JSON object")
    return columns.trace(where, block_tokens=block_tokens, remarks=remarks)


def _fraction(value: Any) -> bool:
    """Return whether a time is no whole number: Mooncake's are whole milliseconds, others with its fields write seconds."""
    return isinstance(value, float) and not value.is_integer()


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))
