"""What an engine refuses to start with, in our words, and the nearest legal value.

Sources: vLLM's checks in ModelConfig, its parallel linear layers, FP8 block quantisation and attention selector; the
refused rows of its own allocator output.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.facts.engine import EngineRules
from tonnage.facts.shape import IndexCache, KVCache, LatentCache, ModelShape, StateCache
from tonnage.memory.allocator import Allocation
from tonnage.memory.cuts import broken_scales, uneven
from tonnage.memory.others import TokenPool
from tonnage.memory.pages import CACHE_ALIASES
from tonnage.settings import EngineSettings, Parallelism
from tonnage.units import GIB

SPARSE_CAPABILITIES = ((9, 0), (10, 0), (10, 3))
MARLIN_TILE = 128


class Refusal(msgspec.Struct, frozen=True):
    """Why the engine would not start, and what would be legal. `id` is stable, for lint and diagnosis."""

    id: str
    reason: str
    remedy: str = ""


LEAST_CAPABILITY = (7, 0)
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM's LoRA configuration takes."""


def refusals(shape: ModelShape, settings: EngineSettings, capability: tuple[int, int] | None, rules: EngineRules) -> tuple[Refusal, ...]:
    """Return everything about model, parallelism and card that the engine refuses, whatever the memory."""
    return (
        *_support(shape, settings, rules),
        *_parallel(shape, settings),
        *_blocks(shape, settings, capability, rules),
        *_attention(shape, settings, capability),
        *_lengths(shape, settings),
        *_limits(shape, settings, capability),
    )


def legal_tp(shape: ModelShape, largest: int = 64) -> list[int]:
    """Return the tensor-parallel sizes that divide the heads (and the state groups, unless there is one).

    >>> from tonnage.facts.catalog import find_model
    >>> legal_tp(find_model("qwen3.5-27b").shape, 16)
    [1, 2, 4, 8]
    """
    groups = {cache.groups for cache in shape.caches if isinstance(cache, StateCache) and cache.groups > 1}
    channels = {cache.conv_channels for cache in shape.caches if isinstance(cache, StateCache) and cache.kind in ("gdn", "kda", "flashkda")}
    heads = {cache.heads for cache in shape.caches if isinstance(cache, StateCache) and cache.heads > 1}
    counts = kv_head_counts(shape)
    return [
        n
        for n in range(1, largest + 1)
        if shape.heads % n == 0
        and all(g % n == 0 for g in groups)
        and all(h % n == 0 for h in (*heads, *channels))
        and all(_splits(k, n) for k in counts)
        and not any(uneven(shape, Parallelism(tp=n)))
    ]


def kv_head_counts(shape: ModelShape) -> set[int]:
    """Return the numbers of KV heads that layers of keys and values have."""
    return {cache.kv_heads for cache in shape.caches if isinstance(cache, KVCache)}


def _splits(kv_heads: int, tp: int) -> bool:
    """Return whether ranks can hold whole KV heads, or whole copies of one."""
    return kv_heads % tp == 0 or tp % kv_heads == 0


def _support(shape: ModelShape, settings: EngineSettings, rules: EngineRules) -> Iterator[Refusal]:
    last = rules.dropped_architectures.get(shape.architecture)
    if last:
        yield Refusal(
            "architecture-dropped",
            f"{shape.architecture} is supported up to {settings.engine} {last}",
            f"use --engine {settings.engine}:{last}",
        )
    asked = settings.kv_cache_dtype.lower()
    if asked not in rules.kv_cache_dtypes and CACHE_ALIASES.get(asked, asked) not in (*rules.kv_cache_dtypes, "bfloat16", "float16"):
        yield Refusal(
            "cache-dtype-unknown",
            f"{settings.release_name} knows no cache dtype {settings.kv_cache_dtype!r}",
            f"use one of {', '.join(rules.kv_cache_dtypes)}",
        )


def _nearest(tp: int, legal: list[int]) -> str:
    best = sorted(legal, key=lambda n: abs(n - tp))[:2]
    return f"use {' or '.join(str(n) for n in sorted(best))}"


def _parallel(shape: ModelShape, settings: EngineSettings) -> Iterator[Refusal]:
    tp, dcp = settings.parallel.tp, settings.parallel.dcp
    if shape.heads % tp:
        yield Refusal(
            "heads-not-divisible",
            f"{shape.heads} attention heads do not divide by tensor-parallel-size {tp}",
            _nearest(tp, legal_tp(shape)),
        )
        return
    unsplit = sorted(kv for kv in kv_head_counts(shape) if not _splits(kv, tp))
    if unsplit:
        yield Refusal(
            "kv-heads-not-divisible",
            f"{unsplit[0]} KV heads neither divide by tensor-parallel-size {tp} nor it by them",
            _nearest(tp, legal_tp(shape)),
        )
        return
    groups = {cache.groups for cache in shape.caches if isinstance(cache, StateCache) and cache.groups > 1 and cache.groups % tp}
    if groups:
        yield Refusal(
            "state-groups-not-divisible",
            f"{max(groups)} state groups do not divide by tensor-parallel-size {tp}",
            _nearest(tp, legal_tp(shape)),
        )
    for id, reason in (*uneven(shape, settings.parallel), *broken_scales(shape, settings.parallel)):
        yield Refusal(id, reason, _nearest(tp, legal_tp(shape)) if id.endswith("divisible") else "lower tensor-parallel-size")
    linear = [cache for cache in shape.caches if isinstance(cache, StateCache) and cache.kind in ("gdn", "kda", "flashkda")]
    if any(cache.conv_channels % tp or cache.heads % tp for cache in linear):
        yield Refusal(
            "state-heads-not-divisible",
            f"{linear[0].heads} heads and {linear[0].conv_channels:,} channels of linear attention do not divide "
            f"by tensor-parallel-size {tp}",
            _nearest(tp, legal_tp(shape)),
        )
    if dcp > 1 and tp % dcp:
        yield Refusal(
            "dcp-not-divisible", f"decode-context-parallel-size {dcp} does not divide tensor-parallel-size {tp}", f"use a divisor of {tp}"
        )
    if dcp > 1 and shape.latent is False and shape.kv_heads * dcp > tp:
        yield Refusal(
            "dcp-above-copies",
            f"decode-context-parallel-size {dcp} needs {dcp} copies of each KV head; "
            f"tensor-parallel-size {tp} makes {max(1, tp // shape.kv_heads)}",
            "lower it",
        )


def _blocks(shape: ModelShape, settings: EngineSettings, capability: tuple[int, int] | None, rules: EngineRules) -> Iterator[Refusal]:
    blocks = {target.scheme.block for target in shape.quantisation.targets if target.scheme.form == "fp8-block"}
    if not blocks:
        return
    side = max(blocks)[0]
    for width in sorted({t.rows for layer in set(shape.layers) for t in layer.tensors if t.experts and t.share == "column" and t.linear}):
        own = width if settings.parallel.expert else width // (settings.parallel.tp * settings.parallel.dp)
        if own % side and own % min(side, rules.fp8_expert_unit):
            yield Refusal(
                "quantisation-block",
                f"an expert's width of {own} on a rank does not divide by the FP8 scale block of {side}",
                "lower tensor-parallel-size, or use expert parallelism",
            )
        elif capability is not None and capability < (8, 9) and own % MARLIN_TILE:
            yield Refusal(
                "fp8-experts-before-8.9",
                f"compute capability {capability[0]}.{capability[1]} runs FP8 experts by Marlin, which needs a width "
                f"divisible by {MARLIN_TILE}; it is {own} on a rank",
                "lower tensor-parallel-size, or use a card with FP8",
            )


def _attention(shape: ModelShape, settings: EngineSettings, capability: tuple[int, int] | None) -> Iterator[Refusal]:
    sparse = any(isinstance(cache, LatentCache) and cache.sparse for cache in shape.caches)
    sparse = sparse or any(isinstance(cache, IndexCache) and cache.bytes_per_token == 132 for cache in shape.caches)
    if sparse and capability is not None and capability not in SPARSE_CAPABILITIES:
        yield Refusal(
            "no-attention-backend",
            f"sparse latent attention has no backend on compute capability {capability[0]}.{capability[1]}",
            "use Hopper or Blackwell data-centre cards",
        )
    elif sparse and settings.kv_cache_dtype == "auto" and shape.quantisation.kv == "fp8":
        yield Refusal(
            "no-attention-backend",
            "the checkpoint asks for an fp8_e4m3 cache, which sparse latent attention has no backend for",
            "ask for --kv-cache-dtype fp8 or bfloat16",
        )


def _limits(shape: ModelShape, settings: EngineSettings, capability: tuple[int, int] | None) -> Iterator[Refusal]:
    if capability is not None and capability < LEAST_CAPABILITY:
        yield Refusal(
            "capability-too-low",
            f"compute capability {capability[0]}.{capability[1]} is below 7.0, the least that the engine's kernels are built for",
            "use a card of Volta or later",
        )
    sequences, batch = settings.max_num_seqs, settings.max_num_batched_tokens
    if sequences and batch and batch < sequences:
        reason = f"max-num-batched-tokens {batch:,} is below max-num-seqs {sequences:,}: a decode step has a token of each"
        yield Refusal("batch-below-sequences", reason, f"use --max-num-seqs {batch}, or a larger batch")
    rank = settings.lora.rank
    if settings.lora.count and rank not in LORA_RANKS:
        yield Refusal(
            "lora-rank",
            f"max-lora-rank {rank} is none of {', '.join(map(str, LORA_RANKS))}",
            f"use {next((known for known in LORA_RANKS if known >= rank), LORA_RANKS[-1])}",
        )
    block = settings.block_size
    if block is not None and block % 8 and block != 1:
        yield Refusal(
            "block-size", f"no attention backend has blocks of {block} tokens", f"use {max(16, block // 16 * 16)}, or leave it out"
        )
    if settings.parallel.pp > 1 and (not shape.caches or shape.architecture.startswith("Gemma3n")):
        yield Refusal("no-pipeline", f"{shape.architecture} does not run in pipeline stages", "use tensor parallelism instead of --pp")
    if settings.parallel.expert and not shape.experts:
        yield Refusal("no-experts", f"{shape.name} has no experts to spread by expert parallelism", "leave --ep out")


def _lengths(shape: ModelShape, settings: EngineSettings) -> Iterator[Refusal]:
    asked = settings.max_model_len
    if asked is not None and asked > shape.max_position:
        yield Refusal(
            "longer-than-the-model",
            f"max-model-len {asked:,} is more than the model's {shape.max_position:,}",
            f"use at most {shape.max_position}",
        )


def does_not_hold_one(allocation: Allocation, pool_bytes: int) -> Refusal | None:
    """Return the refusal of a pool that cannot hold one request of max_model_len, with the longest length that fits."""
    longest = allocation.settings.max_model_len or 1
    spare = 1 if allocation.rules.null_block_reserved else 0
    needed = allocation.sequence_blocks(longest)
    if not allocation.groups or needed <= allocation.num_blocks - spare:
        return None
    fits = longest_that_fits(allocation)
    have = max(0, pool_bytes) / GIB
    wanted = needed * allocation.bytes_per_block / GIB
    reason = f"one request of max-model-len {longest:,} needs {wanted:.2f} GiB of cache; the pool has {have:.2f}"
    return Refusal("max-len-above-pool", reason, f"use --max-model-len {fits}" if fits else "nothing fits: use a larger or a second card")


def seqs_that_start(allocation: Allocation | TokenPool) -> int | None:
    """Return the most sequences with which a hybrid starts, where max_num_seqs is above it; None where all is well.

    CUDA graphs of the decode step need a state block for each sequence (vLLM, config/compilation.py).
    """
    settings, blocks = allocation.settings, allocation.num_blocks
    stateful = any(group.page.kind == "state" for group in allocation.groups)
    if not stateful or settings.enforce_eager or blocks < 1 or (settings.max_num_seqs or 0) <= blocks:
        return None
    return blocks // 8 * 8 or blocks


def seqs_above_state_blocks(asked: int, most: int) -> Refusal:
    """Return the refusal of more sequences than a hybrid has state blocks."""
    return Refusal("seqs-above-state-blocks", f"max-num-seqs {asked:,} is above the state blocks of this hybrid", f"use at most {most}")


def longest_that_fits(allocation: Allocation) -> int:
    """Return the longest sequence the pool holds, as auto-fit finds it; 0 where not even one token fits."""
    spare = 1 if allocation.rules.null_block_reserved else 0
    low, high = 0, allocation.settings.max_model_len or 1
    while low < high:
        middle = (low + high + 1) // 2
        if allocation.sequence_blocks(middle) <= allocation.num_blocks - spare:
            low = middle
        else:
            high = middle - 1
    return low
