"""What is told of a cause: why it came to it here, and what to do, in numbers."""

from __future__ import annotations

import msgspec


class Told(msgspec.Struct, frozen=True):
    """Why, and what to do; `numbers` are the figures behind it by name."""

    why: str
    fix: str
    numbers: dict[str, float] = {}
