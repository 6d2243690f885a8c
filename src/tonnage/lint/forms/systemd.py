"""systemd units: the command of ExecStart, with the unit's environment and user."""

from __future__ import annotations

import re

import msgspec

from tonnage.lint.forms.command import read_script
from tonnage.lint.forms.secrets import secrets_in
from tonnage.lint.place import Source, Word
from tonnage.lint.server import Server

_LINE = re.compile(r"^[ \t]*([A-Za-z]+)[ \t]*=[ \t]*[@:+!-]*", re.MULTILINE)


def is_unit(text: str) -> bool:
    """Return whether a text is a systemd unit with a service."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", ";"))), "")
    return first.startswith("[") and re.search(r"^\[Service\][ \t]*$", text, re.MULTILINE) is not None


def read_unit(source: Source) -> list[Server]:
    """Return the servers that a unit starts."""
    environment: dict[str, Word] = {}
    found: list[Server] = []
    for name, start, end in _entries(source.text):
        if name == "Environment":
            for word in _split(source, start, end):
                key, equals, value = word.text.partition("=")
                if equals:
                    environment[key] = Word(value, word.place)
        elif name == "ExecStart":
            found += read_script(source.only(start, end))
    return [
        msgspec.structs.replace(
            server,
            form="systemd" if server.form == "command" else server.form,
            environment={**environment, **server.environment},
            secrets=(*server.secrets, *secrets_in(environment, ())),
        )
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
