"""systemd units: the command of ExecStart, with the unit's environment and user."""

from __future__ import annotations

import re

from tonnage.lint.forms.command import read_script
from tonnage.lint.place import Source, Word
from tonnage.lint.server import Server

_LINE = re.compile(r"^[ \t]*([A-Za-z]+)[ \t]*=[ \t]*[@:+!-]*", re.MULTILINE)


def is_unit(text: str) -> bool:
    """Return whether a text is a systemd unit with a service."""
    return re.search(r"^\[Service\][ \t]*$", text, re.MULTILINE) is not None


def read_unit(source: Source) -> list[Server]:
    """Return the servers that a unit starts."""
    import msgspec

    environment: dict[str, Word] = {}
    found: list[Server] = []
    for name, start, end in _entries(source.text):
        if name == "Environment":
            for word in _split(source, start, end):
                key, equals, value = word.text.partition("=")
                if equals:
                    environment[key] = Word(value, word.place)
        elif name == "ExecStart":
            blank = " " * start
            inner = Source(source.file, blank + source.text[start:end])
            for server in read_script(inner):
                place = source.place(start)
                found.append(
                    msgspec.structs.replace(
                        _placed(server, inner, source), form="systemd", name="unit", last_line=source.place(end).line, place=place
                    )
                )
    return [
        msgspec.structs.replace(server, environment={**environment, **server.environment}, secrets=_secrets(server, environment))
        for server in found
    ]


def _entries(text: str) -> list[tuple[str, int, int]]:
    """Return (key, start, end) of each entry; a line that ends in a backslash goes on."""
    found = []
    for match in _LINE.finditer(text):
        end = match.end()
        while True:
            newline = text.find("\n", end)
            if newline == -1:
                end = len(text)
                break
            if text[newline - 1] != "\\":
                end = newline
                break
            end = newline + 1
        found.append((match[1], match.end(), end))
    return found


def _split(source: Source, start: int, end: int) -> list[Word]:
    texts = [
        part[0] or part[1] or part[2] for part in re.findall(r"\"([^\"]*)\"|'([^']*)'|(\S+)", source.text[start:end].replace("\\\n", " "))
    ]
    return source.located(texts, start, end)


def _placed(server: Server, inner: Source, outer: Source) -> Server:
    """Return the server with places of the unit: the inner text holds blanks for what stands before the command."""
    import msgspec

    def moved(place: object) -> object:
        from tonnage.lint.place import Place

        assert isinstance(place, Place)
        return outer.place(inner.offset(place.line - 1, place.column - 1))

    flags = tuple(msgspec.structs.replace(flag, place=moved(flag.place)) for flag in server.flags)
    model = msgspec.structs.replace(server.model, place=moved(server.model.place)) if server.model is not None else None
    return msgspec.structs.replace(server, flags=flags, model=model)


def _secrets(server: Server, environment: dict[str, Word]) -> tuple[object, ...]:
    from tonnage.lint.forms.secrets import secrets_in

    return (*server.secrets, *secrets_in(environment, ()))
