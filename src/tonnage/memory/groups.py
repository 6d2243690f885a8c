"""Groups: how an engine lets layers of unlike kinds draw blocks from one pool.

All layers alike make one group. Layers that keep all tokens in pages of different sizes make one group too. Otherwise
page sizes are made equal, and each kind is dealt into groups of the smallest kind's number of layers.
Source: vLLM's hybrid KV cache manager (`get_kv_cache_groups`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tonnage.memory.pages import Page
from tonnage.units import ceil_div

EVERY_TOKEN = ("full", "latent", "index")


class Group(msgspec.Struct, frozen=True):
    """Layers that share a block table: their page (the sum of pages where `mixed`), and how many they are.

    `slots` is the number of layers' pages in one block of the pool; `layers` of them are used, the rest is padding.
    """

    page: Page
    layers: int
    slots: int
    mixed: tuple[tuple[Page, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes one block of this group needs."""
        return sum(page.bytes * count for page, count in self.mixed) if self.mixed else self.page.bytes * self.slots


def grouped(pages: Sequence[Page]) -> tuple[Group, ...]:
    """Return the groups of a stage's layers, given each layer's page, in order of first appearance."""
    counts = Counter(pages)
    if not counts:
        return ()
    if len(counts) == 1:
        ((page, count),) = counts.items()
        return (Group(page, count, count),)
    if any(page.kind in ("entries", "ring") for page in counts):
        return _compressed(counts)
    if _same_slots(counts):
        total = sum(counts.values())
        return (Group(next(iter(counts)), total, total, tuple(counts.items())),)
    return _dealt(_unified(counts))


def _same_slots(counts: Counter[Page]) -> bool:
    kinds = {(page.kind, page.window, page.block) for page in counts}
    if all(kind in EVERY_TOKEN for kind, _, _ in kinds):
        return len({block for _, _, block in kinds}) == 1
    return len(kinds) == 1


def _unified(counts: Counter[Page]) -> Counter[Page]:
    """Return the pages made equal in size: smaller ones cover more tokens where that divides, and are padded where not."""
    largest = max(page.bytes for page in counts)
    out: Counter[Page] = Counter()
    for page, count in counts.items():
        times = largest // page.bytes if page.kind != "state" and largest % page.bytes == 0 else 1
        wider = msgspec.structs.replace(page, block=page.block * times, bytes=largest)
        out[wider] += count
    return out


def _dealt(counts: Counter[Page]) -> tuple[Group, ...]:
    smallest, most = min(counts.values()), max(counts.values())
    size = most if most < 1.5 * smallest else smallest
    groups = []
    for page, count in counts.items():
        parts = ceil_div(count, size)
        groups += [Group(page, count // parts + (1 if index < count % parts else 0), size) for index in range(parts)]
    return tuple(groups)


def _compressed(counts: Counter[Page]) -> tuple[Group, ...]:
    """Return DeepSeek-V4's groups: one of entries and indexes, raw windows in about equal parts, one per kind of ring."""
    entries = {page: count for page, count in counts.items() if page.kind == "entries"}
    rings: dict[tuple[int, int], dict[Page, int]] = {}
    for page, count in counts.items():
        if page.kind == "ring":
            rings.setdefault((page.block, page.window), {})[page] = count
    groups = [_mixed(entries)] if entries else []
    typical = max(entries.values(), default=1)
    for members in rings.values():
        parts = max(1, round(sum(members.values()) / typical)) if len(members) == 1 else 1
        for index in range(parts):
            groups.append(_mixed({page: count // parts + (1 if index < count % parts else 0) for page, count in members.items()}))
    return tuple(groups)


def _mixed(members: dict[Page, int]) -> Group:
    total = sum(members.values())
    return Group(next(iter(members)), total, total, tuple(members.items()))
