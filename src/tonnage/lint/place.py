"""Where does it say so? Files as text, places in them, and words that know where they stand."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

import msgspec


class Place(msgspec.Struct, frozen=True, order=True):
    """A position in a file; line and column count from 1."""

    file: str
    line: int
    column: int


class Word(msgspec.Struct, frozen=True):
    """A piece of text where it was written."""

    text: str
    place: Place

    @property
    def unresolved(self) -> bool:
        """Whether the text holds a variable nobody set: what it says cannot be judged."""
        return "$" in self.text or "{{" in self.text or "`" in self.text


class Source(msgspec.Struct, frozen=True, dict=True):
    """A file's name and text; `interpolates` fills in `${NAME:-default}` in the texts of YAML, as compose does."""

    file: str
    text: str
    interpolates: bool = False

    @cached_property
    def starts(self) -> list[int]:
        """Offsets at which lines begin."""
        starts, at = [0], self.text.find("\n")
        while at != -1:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def place(self, offset: int) -> Place:
        """Return the place of an offset."""
        line = bisect_right(self.starts, offset)
        return Place(self.file, line, offset - self.starts[line - 1] + 1)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column, both counted from 0, as a YAML reader gives them."""
        return self.starts[line] + column if line < len(self.starts) else len(self.text)

    def only(self, start: int, end: int) -> Source:
        """Return the file with blanks for all that stands outside two offsets: places in it are those of the file."""
        before = re.sub(r"[^\n]", " ", self.text[:start])
        return Source(self.file, before + self.text[start:end], self.interpolates)

    def located(self, texts: list[str], start: int, end: int) -> list[Word]:
        """Return words with the places at which they are found, in order, between two offsets; `start` where one is not."""
        words, at = [], start
        for text in texts:
            found = self.text.find(text, at, end) if text else -1
            words.append(Word(text, self.place(found if found != -1 else at)))
            at = found + len(text) if found != -1 else at
        return words
