"""Text for a terminal: wrapping, a bar to scale, colour that only adds. No library: a plan must not wait for one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def paint(text: str, style: str, colour: bool) -> str:
    """Return the text in a style, or as it is where there is no colour."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if colour else text


def wrapped(text: str, width: int, indent: str = "", hanging: str = "") -> list[str]:
    """Return lines of at most `width` columns."""
    lines = textwrap.wrap(
        text, max(20, width), initial_indent=indent, subsequent_indent=hanging or indent, break_long_words=False, break_on_hyphens=False
    )
    return lines or [indent.rstrip()]


def sentence(text: str) -> str:
    """Return a text as a sentence; a name at its beginning stays as it is written.

    >>> sentence("the cache is full"), sentence("max-num-seqs 8 is small"), sentence("vLLM 0.8 logs it.")
    ('The cache is full.', 'max-num-seqs 8 is small.', 'vLLM 0.8 logs it.')
    """
    if not text:
        return ""
    first = text.split(maxsplit=1)[0].rstrip(",:;")
    head = text[:1].upper() if first.isalpha() and first.islower() else text[:1]
    return head + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def bar(parts: Sequence[tuple[str, int]], width: int) -> str:
    """Return a bar to scale: each part is a character and its size; the sum fills `width`, and what is there shows.

    >>> bar([("w", 50), ("o", 1), ("c", 49)], 20)
    '[wwwwwww|o|cccccccc]'
    """
    shown = [(mark, amount) for mark, amount in parts if amount > 0]
    total = sum(amount for _, amount in shown)
    inner = max(len(shown), width - 2 - (len(shown) - 1))
    if not total:
        return "[" + " " * inner + "]"
    cells = [max(1, round(inner * amount / total)) for _, amount in shown]
    while sum(cells) != inner:
        step = 1 if sum(cells) < inner else -1
        index = max(range(len(cells)), key=lambda i: (cells[i] > 1 or step > 0, shown[i][1]))
        cells[index] += step
        if cells[index] < 1:
            break
    return "[" + "|".join(mark * count for (mark, _), count in zip(shown, cells, strict=True)) + "]"


def table(rows: Sequence[Sequence[str]], align: str = "") -> list[str]:
    """Return rows with their columns in line; `align` holds l or r a column."""
    if not rows:
        return []
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    sides = align.ljust(len(widths), "l")
    return [
        "  ".join(cell.rjust(w) if side == "r" else cell.ljust(w) for cell, w, side in zip(row, widths, sides, strict=True)).rstrip()
        for row in rows
    ]
