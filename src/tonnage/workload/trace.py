"""A traffic log as columns: when requests came, how long they were, what they shared. Never what they said."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

FORMATS = ("azure", "mooncake", "usage", "gateway", "vllm-log", "csv")


class Skipped(msgspec.Struct, frozen=True):
    """Rows that could not be used: how many for which reason, and the first few by line. Reasons never quote a value."""

    reasons: tuple[tuple[str, int], ...] = ()
    first: tuple[tuple[int, str], ...] = ()

    @property
    def count(self) -> int:
        """How many rows were skipped."""
        return sum(count for _, count in self.reasons)


class Trace(msgspec.Struct, frozen=True):
    """Requests in the order they came; every column is of one length, or empty where the log does not carry it.

    `arrival_s` runs from 0; `epoch_s` is the moment of that 0 in seconds since 1970, UTC, None where times are relative, and only
    a time of day where `dated` is false (logs that give no year). `end_s` is on the same scale, NaN for a request whose end is not
    known; `cached_tokens` is -1 where the server did not say. `block_ids[block_at[i] : block_at[i + 1]]` names the blocks of
    request i, `block_tokens` each: equal numbers are equal text after equal text.
    """

    format: str
    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int] = ()
    output_tokens: Sequence[int] = ()
    end_s: Sequence[float] = ()
    cached_tokens: Sequence[int] = ()
    block_ids: Sequence[int] = ()
    block_at: Sequence[int] = ()
    block_tokens: int = 0
    epoch_s: float | None = None
    dated: bool = True
    skipped: Skipped = Skipped()
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self.arrival_s)

    def blocks(self, index: int) -> Sequence[int]:
        """Return the whole blocks of a prompt: a last one that is not full is never found again."""
        if not self.block_tokens:
            return ()
        start, end = self.block_at[index], self.block_at[index + 1]
        return self.block_ids[start : min(end, start + self.prompt_tokens[index] // self.block_tokens)]
