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
    """Return the groups of a model's layers, given each layer's page, in order of first appearance."""
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


def of_stage(groups: tuple[Group, ...], pages: Sequence[Page], own: Sequence[Page]) -> tuple[Group, ...]:
    """Return the groups of the whole model as one pipeline stage holds them: its `own` pages among all.

    Each kind is dealt round-robin over its groups, so that a stage's part of a group is at most its layers of the kind
    over the kind's groups, rounded up (`_project_kv_cache_groups_to_worker`).
    """
    everyone, mine = Counter(pages), Counter(own)
    if everyone == mine or not groups:
        return groups
    if len(groups) == 1:
        held = tuple((page, mine[page]) for page, _ in groups[0].mixed if mine[page])
        return (msgspec.structs.replace(groups[0], layers=sum(mine.values()), slots=sum(mine.values()), mixed=held),)
    if any(group.mixed for group in groups):
        return grouped(own)
    parts = Counter(group.page for group in groups)
    largest = max(page.bytes for page in everyone)
    counts: Counter[Page] = Counter()
    for page, count in mine.items():
        counts[_wider(page, largest)] += count
    slots = max(ceil_div(counts[page], parts[page]) for page in parts)
    return tuple(msgspec.structs.replace(group, layers=ceil_div(counts[group.page], parts[group.page]), slots=slots) for group in groups)


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
        out[_wider(page, largest)] += count
    return out


def _wider(page: Page, largest: int) -> Page:
    times = largest // page.bytes if page.kind != "state" and largest % page.bytes == 0 else 1
    return msgspec.structs.replace(page, block=page.block * times, bytes=largest)


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
