"""The allocator as the engine runs it: blocks of the pool, blocks of a sequence, and so the sequences it really admits.

    bytes_per_block = the largest group's bytes          num_blocks = pool // bytes_per_block
    blocks of a sequence = sum over groups of the blocks that its length takes
    concurrency = num_blocks / blocks of a sequence

Source: vLLM's own code, run on a meta device for 15 releases; `tonnage backtest allocator` compares.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.facts.engine import EngineRules
from tonnage.facts.shape import Layer, ModelShape
from tonnage.memory.defaults import tokens_in_flight
from tonnage.memory.groups import Group, grouped, of_stage
from tonnage.memory.pages import Page, PageRules, cache_dtype, hybrid_block, kernel_block, page_of, prefix_mode
from tonnage.memory.parallel import stages
from tonnage.memory.weights import served_dtype
from tonnage.settings import EngineSettings
from tonnage.units import ceil_div


class Allocation(msgspec.Struct, frozen=True):
    """How a pool is cut: groups, bytes of a block, blocks. `prefix_mode` tells how a hybrid keeps its states.

    `read` holds (tokens, blocks) of a sequence as the engine itself counted them, where it was asked.
    With pipeline stages all but `first_bytes` (the block of stage 0) are of the stage that has the fewest blocks.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    num_blocks: int
    block_size: int
    prefix_mode: str
    settings: EngineSettings
    rules: EngineRules
    capability: tuple[int, int] | None
    stage: int = 0
    first_bytes: int = 0
    read: tuple[int, int] | None = None

    def sequence_blocks(self, tokens: int) -> int:
        """Return the blocks one sequence of so many tokens takes, over all groups, at worst (a whole chunk in flight)."""
        if self.read is not None and self.read[0] == tokens:
            return self.read[1]
        return sum(self.group_blocks(group, tokens) for group in self.groups)

    def sequence_bytes(self, tokens: int) -> int:
        """Return what one sequence of so many tokens takes from the pool."""
        return self.sequence_blocks(tokens) * self.bytes_per_block

    def group_blocks(self, group: Group, tokens: int) -> int:
        """Return the blocks of one group that a sequence takes."""
        return blocks_of(group.page, tokens, self.settings, self.rules, self.prefix_mode, self.capability)

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of so many tokens the pool holds, as the engine prints it."""
        blocks = self._counted_blocks(tokens)
        return self.num_blocks / blocks if blocks else 0.0

    def _counted_blocks(self, tokens: int) -> int:
        """Return the blocks of a sequence as the log line counts them, which in older releases is off where pages are unlike."""
        if self.rules.printed_concurrency == "blocks" or not self.groups:
            return self.sequence_blocks(tokens)
        firsts = [_bucket(group.page.bytes, self.groups) for group in self.groups]
        weighed = sum(first * self.group_blocks(group, tokens) for first, group in zip(firsts, self.groups, strict=True))
        return ceil_div(weighed, firsts[0])

    def sized(self, pool_bytes: int) -> Allocation:
        """Return the same cut of a pool of another size."""
        blocks = max(0, pool_bytes) // self.bytes_per_block if self.bytes_per_block else 0
        return msgspec.structs.replace(self, num_blocks=blocks)

    @property
    def printed_tokens(self) -> int:
        """The tokens of the log line "GPU KV cache size: N tokens", by the release's formula."""
        longest = self.settings.max_model_len or 1
        if not self.groups:
            return 0
        if self.rules.printed_tokens == "requests":
            return int(self.concurrency(longest) * longest)
        smallest = min(group.page.block for group in self.groups)
        return self.num_blocks // len(self.groups) * smallest * self.settings.parallel.dcp


def blocks_of(page: Page, tokens: int, settings: EngineSettings, rules: EngineRules, mode: str, capability: tuple[int, int] | None) -> int:
    """Return the blocks of one group that a sequence of so many tokens takes.

    Windows reserve the tokens in flight beyond themselves and one block more; a state takes one block, or with prefix
    caching two and, for some kinds, cards and releases, a checkpoint.
    """
    if page.kind == "state":
        return _state_blocks(page, tokens, settings, rules, mode, capability)
    if page.kind in ("sliding", "ring"):
        kept = min(page.window - 1 + tokens_in_flight(settings, rules), tokens)
        return ceil_div(kept, page.block) + 1
    if page.kind == "chunked":
        return ceil_div(min(page.window + tokens_in_flight(settings, rules), tokens), page.block)
    return ceil_div(ceil_div(tokens, settings.parallel.dcp), page.block)


def _state_blocks(
    page: Page, tokens: int, settings: EngineSettings, rules: EngineRules, mode: str, capability: tuple[int, int] | None
) -> int:
    drafted = settings.num_speculative_tokens
    if mode == "none":
        return 1 + drafted
    if mode == "all":
        return ceil_div(tokens, page.block) + drafted
    name = "" if capability is None else f"{capability[0]}.{capability[1]}"
    checkpoint = 1 if name in rules.state_checkpoints.get(page.state, []) else 0
    return 2 + checkpoint + drafted


def allocate(
    shape: ModelShape,
    settings: EngineSettings,
    rules: EngineRules,
    capability: tuple[int, int] | None,
    pool_bytes: int | Sequence[int],
    *,
    dtype: str = "",
) -> Allocation:
    """Return how the engine cuts a pool of so many bytes on each card; settings must have their defaults filled in.

    With pipeline stages, whose pools may be given each, every rank has as many blocks as the poorest; a pool below one
    block has none.
    """
    served = dtype or served_dtype(shape)
    mode = prefix_mode(shape, settings, rules)
    p = PageRules(settings, rules, capability, served, cache_dtype(settings, shape, served), mode)
    padded = 0
    block = kernel_block(shape, p)
    if shape.hybrid:
        block, padded = hybrid_block(shape, p)
    poorest: tuple[int, int, tuple[Group, ...], int] | None = None
    first = 0
    runs = [[page for layer in layers for cache in layer.caches for page in page_of(cache, block, padded, p)]
            for layers in _stages(shape, settings)]  # fmt: skip
    pages = [page for run in runs for page in run]
    whole = grouped(pages)
    for stage, own in enumerate(runs):
        available = pool_bytes if isinstance(pool_bytes, int) else pool_bytes[min(stage, len(pool_bytes) - 1)]
        groups = of_stage(whole, pages, own)
        size = _block_bytes(groups, rules)
        first = size if stage == 0 else first
        blocks = max(0, available) // size if size else 1
        if poorest is None or blocks < poorest[0]:
            poorest = (blocks, size, groups, stage)
    assert poorest is not None
    blocks, size, groups, stage = poorest
    return Allocation(groups, size, blocks, block, mode, settings, rules, capability, stage, first)


def _stages(shape: ModelShape, settings: EngineSettings) -> list[tuple[Layer, ...]]:
    drafts = shape.draft[:1] if settings.num_speculative_tokens else ()
    counts = stages(len(shape.layers), settings.parallel.pp)
    out, start = [], 0
    for index, count in enumerate(counts):
        own = shape.layers[start : start + count]
        out.append((*own, *drafts) if index == len(counts) - 1 else own)
        start += count
    return out


def _block_bytes(groups: tuple[Group, ...], rules: EngineRules) -> int:
    """Return the bytes of one block of the pool: the largest group's, but for older releases' ways with mixed pages."""
    if not groups:
        return 0
    if len(groups) == 1 or not any(group.mixed for group in groups) or rules.compressed_block == "largest group":
        return max(group.bytes for group in groups)
    sizes: dict[int, int] = {}
    for group in groups:
        own: dict[int, int] = {}
        for page, count in group.mixed:
            size = _bucket(page.bytes, groups)
            own[size] = own.get(size, 0) + count
        for size, count in own.items():
            sizes[size] = max(sizes.get(size, 0), count)
    if rules.compressed_block == "widest count of each page":
        return sum(size * count for size, count in sizes.items())
    return max(sizes.values()) * sum(sizes)


def _bucket(size: int, groups: tuple[Group, ...]) -> int:
    """Return the page size of the first group that holds a page: older releases padded rings up to the entries' pages."""
    known = sorted({page.bytes for page, _ in groups[0].mixed})
    return next((candidate for candidate in known if candidate >= size), size)
