"""Every formula of a plan with its numbers put in, for `--explain` and for a reader who wants to check by hand."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts.shape import KVCache, LatentCache, StateCache
from tonnage.memory.allocator import Allocation
from tonnage.memory.defaults import tokens_in_flight
from tonnage.memory.groups import Group
from tonnage.memory.others import TokenPool
from tonnage.memory.pages import attention_token_bytes, cache_bits
from tonnage.memory.plan import MemoryPlan
from tonnage.settings import EngineSettings


def explain(made: MemoryPlan) -> tuple[str, ...]:
    """Return the formulas of a plan, one a line, in the order in which they are used."""
    return (*_budget(made), *_growth(made), *_pages(made), *_users(made))


def _budget(made: MemoryPlan) -> Iterator[str]:
    settings = made.settings
    if settings.engine == "vllm":
        share = settings.gpu_memory_utilization
        yield f"requested = ceil(card {made.card_bytes:,} B x utilization {share:g}) = {made.requested_bytes:,} B"
    else:
        kept = made.card_bytes - made.requested_bytes
        yield f"requested = card {made.card_bytes:,} B - kept back {kept:,} B = {made.requested_bytes:,} B"
    charged = [entry for entry in made.ledger if entry.label not in ("cache pool", "kept back")]
    yield (
        f"pool = requested {made.requested_bytes:,} - "
        + " - ".join(f"{entry.label} {entry.bytes:,}" for entry in charged)
        + f" = {made.pool.bytes:,} B"
    )


def _growth(made: MemoryPlan) -> Iterator[str]:
    shape, tp, bits = made.request.model.shape, made.settings.parallel.tp, cache_bits(made.cache_dtype)
    full = [cache for cache in shape.caches if isinstance(cache, KVCache) and cache.kind == "full"]
    for cache in dict.fromkeys(full):
        count, heads = full.count(cache), max(1, cache.kv_heads // tp)
        each = attention_token_bytes(cache, tp, made.cache_dtype)
        product = f"{count} full layers x {heads} KV heads on the rank x ({cache.k_dim} + {cache.v_dim}) x {bits} bits"
        yield f"growth = {product} = {count * each:,} B a token"
    latent = [cache for cache in shape.caches if isinstance(cache, LatentCache)]
    for one in dict.fromkeys(latent):
        each = attention_token_bytes(one, tp, made.cache_dtype)
        yield f"growth = {latent.count(one)} latent layers x {each:,} B (whole on every rank) = {latent.count(one) * each:,} B a token"
    for window, size in made.cost.windows:
        yield f"windows = {size:,} B a token, for at most {window:,} tokens"
    states = sum(isinstance(cache, StateCache) for cache in shape.caches)
    if states:
        yield f"state = {states} layers, {made.cost.state_bytes:,} B a sequence, of which convolution {made.cost.conv_bytes:,} B"
    tokens = made.per_user.context_tokens
    yield f"one user, ideal = {made.cost.per_token:,} x {tokens:,} + windows + state = {made.per_user.ideal_bytes:,} B"


def _pages(made: MemoryPlan) -> Iterator[str]:
    allocation = made.allocation
    if isinstance(allocation, TokenPool):
        yield f"page = {allocation.block_size} tokens, {allocation.bytes_per_block:,} B; pages = {allocation.num_blocks:,}"
        if allocation.state_bytes:
            yield f"state slots = {allocation.states:,} sequences of {allocation.state_bytes:,} B"
        return
    if made.request.model.shape.hybrid:
        yield (
            f"attention block = {allocation.block_size:,} tokens, the smallest whose page holds one state; "
            f"prefix caching keeps states in mode '{allocation.prefix_mode}'"
        )
    for group in allocation.groups:
        yield f"group: {_group(group, allocation, made)}"
    yield f"bytes a block = {allocation.bytes_per_block:,} B; blocks = pool // bytes a block = {allocation.num_blocks:,}"


def _group(group: Group, allocation: Allocation | TokenPool, made: MemoryPlan) -> str:
    tokens = made.per_user.context_tokens
    blocks = allocation.group_blocks(group, tokens)
    page = group.page
    if page.kind == "state":
        formula = f"{blocks} state blocks a sequence"
    elif page.kind in ("sliding", "ring"):
        kept = f"min({page.window} - 1 + {_flight(made.settings, allocation)} in flight, {tokens:,})"
        formula = f"ceil({kept} / {page.block}) + 1 = {blocks} blocks"
    elif page.kind == "chunked":
        formula = f"ceil(min({page.window} + {_flight(made.settings, allocation)} in flight, {tokens:,}) / {page.block}) = {blocks} blocks"
    else:
        shared = f" / dcp {made.settings.parallel.dcp}" if made.settings.parallel.dcp > 1 else ""
        formula = f"ceil({tokens:,}{shared} / {page.block}) = {blocks} blocks"
    padding = f" ({group.slots - group.layers} slots padding)" if group.slots > group.layers else ""
    return f"{group.layers} {page.kind} layers{padding}, page {page.bytes:,} B of {page.block:,} tokens: {formula}"


def _flight(settings: EngineSettings, allocation: Allocation | TokenPool) -> str:
    return f"{tokens_in_flight(settings, allocation.rules):,}"


def _users(made: MemoryPlan) -> Iterator[str]:
    user, allocation = made.per_user, made.allocation
    yield f"one user, admitted = {user.blocks:,} blocks x {allocation.bytes_per_block:,} = {user.admitted_bytes:,} B"
    if user.ideal_bytes:
        yield f"ideal users = floor(pool {made.pool.bytes:,} / {user.ideal_bytes:,}) = {made.users.ideal}"
    if user.blocks:
        yield f"admitted users = floor({allocation.num_blocks:,} blocks / {user.blocks:,}) = {made.users.admitted}"
    yield f"safe users = the same in {made.pool.low_bytes:,} B, at most max-num-seqs {made.settings.max_num_seqs}: {made.users.safe}"
