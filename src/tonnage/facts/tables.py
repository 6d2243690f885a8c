"""Our data files as they are read at start-up: TOML for people, one compiled JSON beside it for speed.

`scripts/compile-data` makes `data/compiled.json` from every TOML file of the package, and a test holds the two together.
A plan then parses one JSON in a millisecond instead of four TOML files in twenty.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

DATA = Path(__file__).parent / "data"
COMPILED = DATA / "compiled.json"


@lru_cache(maxsize=1)
def _compiled() -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(COMPILED.read_bytes(), type=dict[str, msgspec.Raw])
    except FileNotFoundError:
        return {}


def table(name: str) -> dict[str, Any]:
    """Return one of the package's own tables by its path without suffix.

    >>> table("gpus/l4")["name"]
    'L4'

    Raises FileNotFoundError: no such table.
    """
    raw = _compiled().get(name)
    if raw is not None:
        return msgspec.json.decode(raw, type=dict[str, Any])
    import tomllib

    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def compiled_text() -> str:
    """Return what compiled.json should hold, from the TOML files; for the script and the test."""
    import tomllib

    tables = {}
    for path in sorted(DATA.rglob("*.toml")):
        tables[path.relative_to(DATA).with_suffix("").as_posix()] = tomllib.loads(path.read_text(encoding="utf-8"))
    return msgspec.json.encode(tables).decode() + "\n"
