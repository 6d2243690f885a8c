"""CSV: a header and a row a request; Azure's traces and any other with a map of its columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping

from tonnage.errors import InputError
from tonnage.workload.trace import Trace
from tonnage.workload.traces.columns import Columns
from tonnage.workload.traces.fields import MAP_HINT, Field, find_fields

AZURE = {"timestamp", "contexttokens", "generatedtokens"}
SEPARATORS = (",", ";", "\t", "|")
LONGEST = 8 * 2**20
"""Characters of a cell."""


def header(line: str) -> list[str]:
    """Return the columns that a line names.

    >>> header("TIMESTAMP;ContextTokens;GeneratedTokens")
    ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens']
    """
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator(line)), [])]
    except csv.Error:
        return []


def separator(line: str) -> str:
    """Return what stands between the columns of a header."""
    return max(SEPARATORS, key=line.count)


def is_azure(columns: Iterable[str]) -> bool:
    """Return whether these are the columns of Azure's traces."""
    return {re.sub(r"[^a-z]", "", column.lower()) for column in columns} >= AZURE


def read_table(lines: Iterable[tuple[int, str]], given: Mapping[str, Field], where: str, *, form: str = "") -> Trace:
    """Return the trace of a CSV.

    Raises InputError: no header, a column that is missing, no row that can be read.
    """
    stream = iter(lines)
    _, first = next(((number, text) for number, text in stream if text.strip()), (0, ""))
    if not first:
        raise InputError("is empty", where=where, hint=MAP_HINT)
    names = header(first)
    fields, remarks = find_fields(names, given, where)
    columns = Columns(form or ("azure" if is_azure(names) else "csv"), fields)
    places = [(name, names.index(field.path)) for name, field in fields.items() if name != "hashes"]
    least = max(place for _, place in places) + 1
    numbers = [0]
    for row in _rows(csv.reader(_texts(stream, numbers), delimiter=separator(first))):
        if row is None:
            columns.skip(numbers[0], "it is no row of a CSV")
        elif len(row) >= least:
            columns.add(numbers[0], {name: row[place] for name, place in places})
        elif row:
            columns.skip(numbers[0], "it has fewer columns than the header")
    return columns.trace(where, remarks=remarks)


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Yield the rows, None for one that is none. A cell may hold a whole prompt, so it may be as long as a line."""
    before = csv.field_size_limit(LONGEST)
    try:
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield None
    finally:
        csv.field_size_limit(before)


def _texts(lines: Iterator[tuple[int, str]], numbers: list[int]) -> Iterator[str]:
    """Yield the lines, and keep the number of the last."""
    for number, text in lines:
        numbers[0] = number
        yield text + "\n"
