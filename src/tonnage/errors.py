"""What can go wrong that is not our bug, split by whose fault it is.

The command line prints a `TonnageError` as one line and a hint; anything else is a bug and may crash.
Not fitting is no error: it is a value (`plan.fits` is false).
"""

from __future__ import annotations

from collections.abc import Iterable


class TonnageError(Exception):
    """Base of all; raise a subclass.

    >>> print(InputError("size '24' has no unit", where="gpus.toml: [l4] memory", hint="write it like '24 GiB'"))
    gpus.toml: [l4] memory: size '24' has no unit
    """

    exit_code = 2

    def __init__(self, problem: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem = problem
        self.where = where
        self.hint = hint


class InputError(TonnageError):
    """The user gave something that cannot be right: a malformed file, a negative number, a flag that contradicts."""


class UnknownError(TonnageError):
    """A name, architecture, dtype or field that we do not know; refused rather than guessed."""


class EndpointError(TonnageError):
    """A server or a program that we called failed."""

    exit_code = 3


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names closest to `name`, best first, for a hint.

    >>> nearest("qwen3.5-5b", ["qwen3.5-4b", "qwen3.5-9b", "gemma-3-27b-it"], 2)
    ['qwen3.5-9b', 'qwen3.5-4b']
    """
    from difflib import get_close_matches

    lowered = {candidate.lower(): candidate for candidate in known}
    return [lowered[match] for match in get_close_matches(name.lower(), list(lowered), n=count, cutoff=0.5)]


def closest_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint that names the closest known names, or `otherwise` where nothing is close."""
    close = nearest(name, known)
    return f"closest are {', '.join(close[:-1])} and {close[-1]}" if len(close) > 1 else (f"closest is {close[0]}" if close else otherwise)
