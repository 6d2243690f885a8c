"""What does a shell script run? Simple commands with the places of their words; nothing is executed.

Quotes, continuations, comments, redirections, here-documents, `NAME=value`, arrays and `${NAME:-default}` are read as
POSIX shells and bash read them; what only a running shell knows (`$(...)`, unset variables) stays in the text, unresolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tonnage.errors import InputError
from tonnage.lint.place import Place, Source, Word

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
EXPANSION = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-=])([^{}$]*))?\}|\{([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}|([A-Za-z_][A-Za-z0-9_]*))"
)
KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "fi", "done", "function"}
MOST_WORDS = 200_000


@dataclass(slots=True)
class Statement:
    """One simple command: its words, and the environment it is given, by name.

    `broken` is where a backslash before blanks ends a line that was meant to go on.
    """

    words: list[Word]
    environment: dict[str, Word] = field(default_factory=dict)
    broken: Place | None = None


@dataclass(slots=True)
class _Raw:
    """A word as read: its text, where it begins, and whether quotes keep it whole."""

    text: str
    at: int
    quoted: bool
    literal: bool
    array: list[_Raw] | None = None


def statements(source: Source, start: int = 0, end: int | None = None, *, variables: dict[str, list[str]] | None = None) -> list[Statement]:
    """Return the simple commands of a script, in order, with what earlier lines assign and export filled in."""
    end = len(source.text) if end is None else end
    variables = dict(variables or {})
    exported: dict[str, Word] = {}
    found: list[Statement] = []
    for raws in _commands(source.text, start, end):
        statement = _statement(source, raws, variables, exported)
        if statement is not None:
            found.append(statement)
    return found


def _statement(source: Source, raws: list[_Raw], variables: dict[str, list[str]], exported: dict[str, Word]) -> Statement | None:
    while raws and raws[0].text in KEYWORDS and not raws[0].quoted:
        raws = raws[1:]
    own: dict[str, Word] = {}
    assigned: dict[str, list[str]] = {}
    while raws and (match := ASSIGNMENT.match(raws[0].text)) and (not raws[0].quoted or raws[0].text[0] not in "'\""):
        raw, name = raws[0], match[1]
        value = _expanded(raw.text[match.end() :], variables) if not raw.literal else raw.text[match.end() :]
        items = [word for one in raw.array for word in _words(one, variables)] if raw.array is not None else [value]
        assigned[name] = [*variables.get(name, []), *items] if "+=" in match[0] and raw.array is not None else items
        own[name] = Word(" ".join(items), source.place(raw.at + match.end()))
        raws = raws[1:]
    if not raws:
        variables.update(assigned)
        exported.update({name: word for name, word in own.items() if name in exported})
        return None
    words = [Word(text, source.place(raw.at)) for raw in raws for text in _words(raw, variables)]
    if not words:
        return None
    if words[0].text in ("export", "declare", "readonly", "local", "typeset"):
        for word in words[1:]:
            name, equals, value = word.text.partition("=")
            if equals and NAME.fullmatch(name):
                variables[name] = [value]
                exported[name] = Word(value, word.place)
            elif name in variables and words[0].text == "export":
                exported[name] = Word(" ".join(variables[name]), word.place)
        return None
    cut = next((raw for raw in raws if source.text[raw.at : raw.at + 2] in ("\\ ", "\\\t")), None)
    broken = source.place(cut.at) if cut is not None else None
    words = [word for word in words if broken is None or word.place < broken]
    return Statement(words, {**exported, **own}, broken) if words else None


def _words(raw: _Raw, variables: dict[str, list[str]]) -> list[str]:
    """Return what a word becomes: itself, or several where an unquoted variable or an array holds several."""
    if raw.literal or "$" not in raw.text:
        return [raw.text]
    whole = EXPANSION.fullmatch(raw.text)
    if whole and (name := whole[1] or whole[4] or whole[5]) in variables and (whole[4] or not raw.quoted):
        items = variables[name]
        return list(items) if whole[4] else [word for item in items for word in item.split()]
    return [_expanded(raw.text, variables)]


def _expanded(text: str, variables: dict[str, list[str]]) -> str:
    def one(match: re.Match[str]) -> str:
        name = match[1] or match[4] or match[5]
        if name in variables:
            return " ".join(variables[name])
        return match[3] if match[2] and match[3] is not None else match[0]

    return EXPANSION.sub(one, text) if "$" in text else text


def _commands(text: str, start: int, end: int) -> Iterator[list[_Raw]]:
    """Yield the raw words of each simple command."""
    raws: list[_Raw] = []
    documents: list[str] = []
    at, count, skip_next = start, 0, False
    while at < end:
        char = text[at]
        if char == "\n":
            if raws:
                yield raws
                raws = []
            at += 1
            for mark in documents:
                at = _after_document(text, at, end, mark)
            documents, skip_next = [], False
        elif char in " \t\r":
            at += 1
        elif char == "\\" and text[at + 1 : at + 2] in ("\n", "\r"):
            at += 2 + (text[at + 1 : at + 3] == "\r\n")
        elif char == "#":
            newline = text.find("\n", at, end)
            at = end if newline == -1 else newline
        elif char in "<>" or (char.isdigit() and re.match(r"[0-9]+[<>]", text[at : at + 4])) or text[at : at + 2] == "&>":
            match = re.compile(r"[0-9]*(?:&>>?|<<-?|<<<|>>|>\||[<>]&?)").match(text, at, end)
            assert match is not None
            at = match.end()
            if match[0].lstrip("0123456789") in ("<<", "<<-"):
                raw, at = _word(text, _past_blanks(text, at, end), end)
                documents.append(raw.text)
            else:
                skip_next = True
        elif char in ";&|()":
            if raws:
                yield raws
                raws = []
            at += 1
        else:
            raw, at = _word(text, at, end)
            if not skip_next:
                raws.append(raw)
                count += 1
            skip_next = False
            if count > MOST_WORDS:
                raise InputError(f"holds more than {MOST_WORDS:,} words: no script")
    if raws:
        yield raws


def here_documents(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what a script feeds to its commands by here-documents."""
    for match in re.finditer(r"<<-?[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1", text):
        newline = text.find("\n", match.end())
        if newline == -1:
            return
        end = _after_document(text, newline + 1, len(text), match[2])
        yield newline + 1, text.rfind("\n", 0, max(newline + 1, end - 1)) + 1 if end < len(text) or text.endswith("\n") else end


def _past_blanks(text: str, at: int, end: int) -> int:
    while at < end and text[at] in " \t":
        at += 1
    return at


def _after_document(text: str, at: int, end: int, mark: str) -> int:
    """Return the offset after a here-document's closing line."""
    while at < end:
        newline = text.find("\n", at, end)
        newline = end if newline == -1 else newline
        if text[at:newline].strip() == mark:
            return min(end, newline + 1)
        at = newline + 1
    return end


def _word(text: str, at: int, end: int) -> tuple[_Raw, int]:
    """Return the word that begins at an offset, and the offset after it."""
    begin, quoted, literal = at, False, False
    parts: list[str] = []
    while at < end:
        char = text[at]
        if char in " \t\r\n;&|<>()" and not (char == "(" and parts and ASSIGNMENT.fullmatch("".join(parts))):
            break
        if char == "(":
            array, at = _array(text, at + 1, end)
            return _Raw("".join(parts), begin, False, False, array), at
        if char == "\\":
            if text[at + 1 : at + 2] == "\n":
                at += 2
                continue
            parts.append(text[at + 1 : at + 2])
            at += 2
        elif char == "'":
            close = text.find("'", at + 1, end)
            close = end if close == -1 else close
            parts.append(text[at + 1 : close])
            quoted, literal, at = True, literal or "$" in text[at + 1 : close], close + 1
        elif char == '"':
            piece, at = _double(text, at + 1, end)
            parts.append(piece)
            quoted = True
        elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
            close = _balanced(text, at + 1, end)
            parts.append(text[at:close])
            at = close
        elif char == "`":
            close = text.find("`", at + 1, end)
            close = end if close == -1 else close + 1
            parts.append(text[at:close])
            at = close
        else:
            stop = at + 1
            while stop < end and text[stop] not in " \t\r\n;&|<>()\\'\"$`":
                stop += 1
            parts.append(text[at:stop])
            at = stop
    return _Raw("".join(parts), begin, quoted, literal), max(at, begin + 1)


def _double(text: str, at: int, end: int) -> tuple[str, int]:
    """Return the inside of double quotes, and the offset after them."""
    parts = []
    while at < end and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            parts.append("" if text[at + 1] == "\n" else text[at + 1])
            at += 2
        elif text[at] == "$" and text[at + 1 : at + 2] in ("(", "{"):
            close = _balanced(text, at + 1, end)
            parts.append(text[at:close])
            at = close
        else:
            stop = at + 1
            while stop < end and text[stop] not in '"\\$':
                stop += 1
            parts.append(text[at:stop])
            at = stop
    return "".join(parts), at + 1


def _balanced(text: str, at: int, end: int) -> int:
    """Return the offset after the bracket that closes the one at an offset."""
    pairs = {"(": ")", "{": "}"}
    opening, closing, depth = text[at], pairs[text[at]], 0
    while at < end:
        if text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return end


def _array(text: str, at: int, end: int) -> tuple[list[_Raw], int]:
    raws = []
    while at < end and text[at] != ")":
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] == "#":
            newline = text.find("\n", at, end)
            at = end if newline == -1 else newline
        elif text[at] in ";&|<>(":
            at += 1
        else:
            raw, at = _word(text, at, end)
            raws.append(raw)
    return raws, at + 1
