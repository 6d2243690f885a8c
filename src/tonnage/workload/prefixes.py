"""What prompts share: the share of their tokens that a cache of any size, or of a given one, would find again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from tonnage.workload.concurrency import peak_of
from tonnage.workload.trace import Trace

LADDER = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


class Held(msgspec.Struct, frozen=True):
    """The share of prompt tokens that a cache of `cache_tokens`, evicting what was used longest ago, finds again."""

    cache_tokens: int
    hit_share: float


class Prefixes(msgspec.Struct, frozen=True):
    """Blocks of `block_tokens`; `ideal_share` is what a cache that forgets nothing finds again, of all prompt tokens.

    `distinct_tokens` is what it would have to hold. `shared_prefix_tokens` is what one request holds in common with the others
    in flight at the busiest moment: memory that is paid once. It is less than the hits: the turns of one conversation are found
    again, and are not in flight together. `common_tokens` are the same at the start of nine prompts of ten.
    """

    block_tokens: int
    ideal_share: float
    distinct_tokens: int
    shared_prefix_tokens: int
    common_tokens: int
    lru: tuple[Held, ...]


def prefixes(trace: Trace, starts: Sequence[float], ends: Sequence[float], sizes: Sequence[int] = LADDER) -> Prefixes | None:
    """Return what prompts share, with the intervals in which requests are in flight; None where a log has no block hashes."""
    if not trace.block_tokens or not len(trace):
        return None
    distinct = len(set(trace.block_ids)) if trace.block_ids else 0
    asked = sorted(set(sizes))
    return Prefixes(
        trace.block_tokens, hit_share(trace), distinct * trace.block_tokens, shared_at_peak(trace, starts, ends), common_tokens(trace),
        tuple(Held(size, hit_share(trace, size)) for size in asked),
    )  # fmt: skip


def hit_share(trace: Trace, cache_tokens: int | None = None) -> float:
    """Return the share of prompt tokens found again by a cache of that size, or by one that forgets nothing (None).

    Whole blocks from the start of a prompt, until one is missing; at least one token is computed again. A prompt's blocks are
    held from the moment it comes, its first ones longest, and what was used longest ago goes first::

        sum(blocks found x block_tokens) / sum(prompt_tokens)
    """
    size = trace.block_tokens
    if not size:
        return 0.0
    room = None if cache_tokens is None else cache_tokens // size
    cache: OrderedDict[int, None] = OrderedDict()
    found = 0
    for index, prompt in enumerate(trace.prompt_tokens):
        blocks = trace.blocks(index)
        for block in blocks[: (prompt - 1) // size]:
            if block not in cache:
                break
            found += 1
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while room is not None and len(cache) > room:
            cache.popitem(last=False)
    return found * size / sum(trace.prompt_tokens)


def shared_at_peak(trace: Trace, starts: Sequence[float], ends: Sequence[float]) -> int:
    """Return how many tokens of a request in flight at the busiest moment are also another's, so that memory holds them once::

    (blocks in flight - distinct blocks) / (requests - 1) x block_tokens
    """
    if len(starts) != len(trace):
        return 0
    _, at = peak_of(starts, ends)
    inside = [index for index, start in enumerate(starts) if start <= at < ends[index]]
    blocks = [block for index in inside for block in trace.blocks(index)]
    return (len(blocks) - len(set(blocks))) // max(1, len(inside) - 1) * trace.block_tokens


def common_tokens(trace: Trace) -> int:
    """Return how many tokens at the start of a prompt are the same in at least nine requests of ten."""
    members: list[int] = list(range(len(trace)))
    least, depth = 0.9 * len(members), 0
    while True:
        following: dict[int, list[int]] = {}
        for index in members:
            blocks = trace.blocks(index)
            if len(blocks) > depth:
                following.setdefault(blocks[depth], []).append(index)
        members = max(following.values(), key=len, default=[])
        if not members or len(members) < least:
            return depth * trace.block_tokens
        depth += 1
