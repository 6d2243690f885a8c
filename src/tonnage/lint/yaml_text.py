"""YAML as a tree whose nodes know their places; aliases are followed where they are asked for and never unfolded.

Reading is PyYAML's; what stands here asks a node for a key, a list or a text without ever failing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.lint.place import Place, Source, Word

if TYPE_CHECKING:
    from yaml.nodes import Node

DEEPEST = 200


class Yaml:
    """One node of a document: a mapping, a list or a text, and the file it stands in."""

    __slots__ = ("node", "source")

    def __init__(self, source: Source, node: Node | None) -> None:
        self.source = source
        self.node = node

    def __bool__(self) -> bool:
        return self.node is not None and self.node.tag != "tag:yaml.org,2002:null"

    @property
    def kind(self) -> str:
        """mapping, sequence, scalar, or empty where there is nothing."""
        return str(getattr(self.node, "id", "")) if self else ""

    @property
    def start(self) -> int:
        """The offset where the node begins."""
        assert self.node is not None
        return self.source.offset(self.node.start_mark.line, self.node.start_mark.column)

    @property
    def end(self) -> int:
        """The offset after the node."""
        assert self.node is not None
        return self.source.offset(self.node.end_mark.line, self.node.end_mark.column)

    @property
    def place(self) -> Place:
        """Where the node begins."""
        return self.source.place(self.start)

    def pairs(self, depth: int = 0) -> Iterator[tuple[Word, Yaml]]:
        """Yield the keys and values of a mapping, its own before those it merges with `<<`."""
        if self.kind != "mapping" or depth > DEEPEST:
            return
        assert self.node is not None
        merged = []
        for key, value in self.node.value:
            if key.id != "scalar":
                continue
            if key.value == "<<":
                merged.append(Yaml(self.source, value))
                continue
            start = self.source.offset(key.start_mark.line, key.start_mark.column)
            yield Word(key.value, self.source.place(start)), Yaml(self.source, value)
        for one in merged:
            for part in one.items() if one.kind == "sequence" else [one]:
                yield from part.pairs(depth + 1)

    def get(self, *path: str) -> Yaml:
        """Return what stands under a path of keys; an empty node where nothing does."""
        here = self
        for name in path:
            here = next((value for key, value in here.pairs() if key.text == name), Yaml(self.source, None))
        return here

    def key(self, name: str) -> Place | None:
        """Return where a key of a mapping stands."""
        return next((key.place for key, _ in self.pairs() if key.text == name), None)

    def items(self) -> list[Yaml]:
        """Return the items of a list; none where it is none."""
        if self.kind != "sequence":
            return []
        assert self.node is not None
        return [Yaml(self.source, item) for item in self.node.value]

    @property
    def text(self) -> str:
        """The text of a scalar; empty where it is none."""
        if self.kind != "scalar":
            return ""
        assert self.node is not None
        text = str(self.node.value)
        return interpolated(text) if self.source.interpolates and "$" in text else text

    @property
    def word(self) -> Word:
        """The scalar with its place, behind a quote that opens it."""
        quoted = self.node is not None and getattr(self.node, "style", None) in ("'", '"')
        return Word(self.text, self.source.place(self.start + (1 if quoted else 0)))

    @property
    def true(self) -> bool:
        """Whether the node is a yes."""
        return self.text.lower() in ("true", "yes", "on")

    @property
    def false(self) -> bool:
        """Whether the node is a no."""
        return self.text.lower() in ("false", "no", "off")

    def number(self, otherwise: int) -> int:
        """Return a whole number, or what stands in where it is none."""
        return int(self.text) if self.text.isdecimal() and len(self.text) < 10 else otherwise

    def labels(self) -> tuple[tuple[str, str], ...]:
        """Return a mapping of texts as pairs."""
        return tuple((key.text, value.text) for key, value in self.pairs())


_DEFAULT = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*:?-([^{}$]*)\}")


def interpolated(text: str) -> str:
    """Return a text with the defaults of its variables; without one a variable stays as it is.

    >>> interpolated("${BIND:-127.0.0.1}:${PORT}:8000")
    '127.0.0.1:${PORT}:8000'
    """
    return _DEFAULT.sub(lambda match: match[1], text)


def documents(source: Source) -> list[Yaml]:
    """Return the documents of a YAML file.

    Raises InputError: no YAML, or nested deeper than anyone writes.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return [Yaml(source, node) for node in yaml.compose_all(source.text, Loader=loader) if node is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source.file}:{mark.line + 1}" if mark is not None else source.file
        template = "{{" in source.text
        hint = "templates are judged once they are rendered: helm template . | tonnage lint -" if template else ""
        raise InputError(f"is no YAML ({getattr(error, 'problem', None) or 'not readable'})", where=where, hint=hint) from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"is no YAML ({type(error).__name__})", where=source.file) from None
