"""A stream of bytes -> a trace: which format it is, told by what it holds, and its reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import IO

from tonnage.errors import InputError
from tonnage.workload.trace import FORMATS, Trace
from tonnage.workload.traces.fields import ALIASES, MAP_HINT, NEEDS, Field
from tonnage.workload.traces.objects import decoded, form_of, read_objects
from tonnage.workload.traces.tables import header, is_azure, read_table
from tonnage.workload.traces.vllm_log import read_vllm_log, says_requests

LONGEST = 8 * 2**20
"""Bytes of a line that are read; a longer one is cut there, and so cannot be read as JSON."""
HEAD = 40
"""Lines that decide which format it is."""


def read_trace(stream: IO[bytes], where: str, *, form: str = "", given: Mapping[str, Field] | None = None, block_tokens: int = 0) -> Trace:
    """Return the requests of a log of any format that we know; `form` and `given` (the map) go before what it looks like.

    Raises InputError: empty, binary, in no format that we know, or without a row that can be read.
    """
    fields = given or {}
    lines = numbered(stream, where)
    head = list(islice(lines, HEAD))
    form = form or told_by(head, fields)
    rest = chain(head, lines)
    if form in ("azure", "csv"):
        return read_table(rest, fields, where, form=form)
    if form in ("mooncake", "usage", "gateway"):
        return read_objects(rest, fields, where, form=form, block_tokens=block_tokens)
    if form == "vllm-log":
        return read_vllm_log(rest, where)
    if not any(text.strip() for _, text in head):
        raise InputError("is empty", where=where, hint=NEEDS)
    if any(says_requests(text) for _, text in head) or _like_a_log(head):
        return read_vllm_log(rest, where)
    if next(text for _, text in head if text.strip()).lstrip().startswith("["):
        raise InputError("is a list of JSON, not a line an object", where=where, hint="jq -c '.[]' FILE makes lines of it")
    raise InputError("is no log of requests that we know", where=where, hint=f"known are {', '.join(FORMATS)}; {NEEDS}; {MAP_HINT}")


def told_by(head: list[tuple[int, str]], given: Mapping[str, Field]) -> str:
    """Return the format of a log with these first lines, "" where it is none of those with fields.

    >>> told_by([(1, "TIMESTAMP,ContextTokens,GeneratedTokens")], {}), told_by([(1, '{"t": 1}')], {})
    ('azure', 'gateway')
    """
    texts = [text for _, text in head if text.strip()]
    if not texts or any(text.startswith('{"log":') and says_requests(text) for text in texts):
        return ""
    objects = [value for value in map(decoded, texts) if value is not None]
    if objects:
        return form_of(objects) if not all("log" in value for value in objects) else ""
    names = header(texts[0])
    if is_azure(names):
        return "azure"
    plain = {"".join(c for c in name.lower() if c.isalnum()) for name in names}
    known = any(plain & set(ALIASES[name]) for name in ("arrival", "end")) or any(field.path in names for field in given.values())
    return "csv" if len(names) > 1 and (known or given) else ""


def _like_a_log(head: list[tuple[int, str]]) -> bool:
    return any(word in text for _, text in head for word in ("INFO ", "WARNING ", "DEBUG ", '{"log":'))


def numbered(stream: IO[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line, its end gone.

    Raises InputError: bytes that are no text.
    """
    number = 0
    while raw := stream.readline(LONGEST):
        number += 1
        if not raw.endswith(b"\n"):
            while (rest := stream.readline(LONGEST)) and not rest.endswith(b"\n"):
                pass
        if b"\0" in raw[:4096]:
            raise InputError("is binary, or text of two bytes a character", where=where, hint="give UTF-8, plain or in gzip")
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        yield number, raw.decode("utf-8", "replace").rstrip("\r\n")
