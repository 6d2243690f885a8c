"""What an option's text becomes: tokens, shares, engines, paths; each says what is wrong in a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tonnage.errors import InputError
from tonnage.units import parse_share, parse_tokens


class Tokens(click.ParamType[int]):
    """A count of tokens: 24000, 24k (24,000) or 24Ki (24,576)."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the count."""
        if isinstance(value, int):
            return value
        return parse_tokens(str(value), where=_option(param))


class Share(click.ParamType[float]):
    """A share: 0.7 or 70%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share, 0..1."""
        if isinstance(value, float):
            return value
        return parse_share(str(value), where=_option(param))


class Count(click.ParamType[int]):
    """A whole number of at least `least`."""

    name = "number"

    def __init__(self, least: int = 1, most: int = 10_000_000) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        number = parse_tokens(str(value), where=_option(param)) if not str(value).lstrip().startswith("-") else -1
        if not self.least <= number <= self.most:
            raise InputError(f"{value!r} is not between {self.least} and {self.most:,}", where=_option(param))
        return number


def _option(param: click.Parameter | None) -> str:
    return param.opts[0] if param and param.opts else ""


def terminal_width() -> int:
    """Return the columns of the terminal, 80 where there is none."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return max(40, int(asked))
    try:
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return 80


def in_colour() -> bool:
    """Return whether to paint: a terminal, and nobody asked for none."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def write_beside(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: beside it, then renamed.

    Raises InputError: the folder is missing or closed to us.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot be written ({error.strerror or error})", where=str(path)) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def number_table(path: Path, table: str) -> dict[str, float]:
    """Return a table of a TOML file: names, and a number each.

    Raises InputError: no such file, no TOML, no such table, or something that is no number of at least 0.
    """
    import tomllib

    try:
        value: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"is no TOML ({error})", where=str(path), hint=f"write [{table}], then lines like: l4 = 8") from None
    found = value.get(table)
    if not isinstance(found, dict) or not found:
        raise InputError(f"has no table [{table}]", where=str(path), hint=f"write [{table}], then lines like: l4 = 8")
    for name, number in found.items():
        if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number < 10**7:
            raise InputError(f"{name} = {number!r} is no number of at least 0", where=f"{path}: [{table}]")
    return {str(name): float(number) for name, number in found.items()}


@contextmanager
def whole(where: str) -> Iterator[None]:
    """Turn what reading a damaged gzip raises into an InputError that names the file."""
    from gzip import BadGzipFile
    from zlib import error as BadData

    try:
        yield
    except (EOFError, BadGzipFile, BadData) as error:
        raise InputError(f"is damaged or cut gzip ({error})", where=where, hint="copy it again, or unpack what can be: zcat") from None


def read_file(path: Path) -> bytes:
    """Return a file's bytes.

    Raises InputError: missing, a folder, or closed to us.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", where=str(path)) from None
