"""The flags of each vLLM release: known since, until, deprecated since; read from the add_argument calls of its wheels."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tonnage.facts.tables import DATA

SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-q": "--quantization",
}


class Flag(msgspec.Struct, frozen=True):
    """One flag: first and last release that know it (last None: the newest still does)."""

    first: str
    last: str | None = None
    deprecated: str | None = None


def release_tuple(text: str) -> tuple[int, int]:
    """Return (major, minor) of a release text.

    >>> release_tuple("0.33.0")
    (0, 33)
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@lru_cache(maxsize=1)
def every_flag() -> dict[str, Flag]:
    """Return every flag that any release knows, by its long spelling."""
    value = msgspec.json.decode((DATA / "engines" / "vllm-flags.json").read_bytes())
    return msgspec.convert(value["flags"], dict[str, Flag])


@lru_cache(maxsize=1)
def flag_releases() -> tuple[tuple[int, int], ...]:
    """Return the releases whose flags were read."""
    value = msgspec.json.decode((DATA / "engines" / "vllm-flags.json").read_bytes())
    return tuple(release_tuple(text) for text in value["releases"])


@lru_cache(maxsize=32)
def flags_of(release: tuple[int, int]) -> frozenset[str]:
    """Return the flags that a release knows; a release newer than all read knows what the newest does.

    >>> "--disable-log-requests" in flags_of((0, 9)), "--disable-log-requests" in flags_of((0, 33))
    (True, False)
    """
    return frozenset(
        name
        for name, flag in every_flag().items()
        if release_tuple(flag.first) <= release and (flag.last is None or release <= release_tuple(flag.last))
    )
