"""Lists of words as container files give them: items with variables, items that hold several words, whole shell lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tonnage.lint.invocation import invocation
from tonnage.lint.place import Source, Word
from tonnage.lint.shell import Statement, statements

SHELLS = {"sh", "bash", "ash", "dash", "zsh"}
_KUBERNETES_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class Words(msgspec.Struct, frozen=True):
    """The words of a container's start, and those that were given joined to others."""

    words: tuple[Word, ...]
    joined: tuple[Word, ...] = ()
    environment: dict[str, Word] = {}


def substituted(words: Sequence[Word], environment: Mapping[str, Word]) -> list[Word]:
    """Return words with `$(NAME)` filled in from the container's environment, as the kubelet does."""

    def one(match: re.Match[str]) -> str:
        known = environment.get(match[1])
        return known.text if known is not None else match[0]

    return [msgspec.structs.replace(word, text=_KUBERNETES_VARIABLE.sub(one, word.text)) for word in words]


def read_words(
    source: Source,
    command: Sequence[Word],
    args: Sequence[Word],
    spans: Mapping[Word, tuple[int, int]],
    environment: Mapping[str, Word] = {},
) -> Words:
    """Return the words that a command and its arguments start.

    A shell with `-c` runs what its script says; the statement that starts an engine is taken, with the container's environment
    filled in. An item with blanks in it where a word is expected is several words joined. `spans` tells where in the source an
    item's text stands.
    """
    words = [*command, *args]
    script = _script(words)
    if script is not None:
        for statement in nested(source, script, spans, environment):
            if invocation(statement.words) is not None:
                return Words(tuple(statement.words), (), statement.environment)
        return Words(())
    plain: list[Word] = []
    joined: list[Word] = []
    for index, word in enumerate(words):
        if _is_joined(word, index, words):
            joined.append(word)
            plain += [one for statement in nested(source, word, spans) for one in statement.words]
        else:
            plain.append(word)
    return Words(tuple(plain), tuple(joined))


def _script(words: Sequence[Word]) -> Word | None:
    """Return the word that a shell is told to run."""
    if not words or words[0].text.rsplit("/", 1)[-1] not in SHELLS:
        return None
    for index, word in enumerate(words[1:-1], 1):
        if word.text.startswith("-") and "c" in word.text:
            return words[index + 1]
    return None


def _is_joined(word: Word, index: int, words: Sequence[Word]) -> bool:
    """Return whether an item holds several words: a flag and its value, or a program and its arguments."""
    text = word.text.strip()
    blank = re.search(r"\s", text)
    if blank is None:
        return False
    if text.startswith("-"):
        flag = text[: blank.start()]
        return "=" not in flag
    return index == 0 and len(words) >= 1 and " -" in text


def nested(source: Source, word: Word, spans: Mapping[Word, tuple[int, int]] = {}, environment: Mapping[str, Word] = {}) -> list[Statement]:
    """Return the statements inside a word, with places found in the file they stand in."""
    known = {name: [one.text] for name, one in environment.items() if not one.unresolved}
    inner = statements(Source(source.file, word.text), variables=known)
    start, end = spans.get(word, (source.offset(word.place.line - 1, word.place.column - 1), len(source.text)))
    found = []
    for statement in inner:
        placed = source.located([one.text for one in statement.words], start, end)
        found.append(Statement(placed, {name: Word(one.text, word.place) for name, one in statement.environment.items()}))
        if placed:
            start = source.offset(placed[-1].place.line - 1, placed[-1].place.column - 1)
    return found
