"""Pages: what each layer stores in one block of tokens, on one rank, in the cache's precision.

A page of full or sliding attention is `block x kv_heads_on_rank x (k + v) x bytes`; a latent is whole on every rank; a
state is one page a sequence, and the attention block of a hybrid grows until its page is as large as the state's.
Source: vLLM's KVCacheSpec classes and its block-size alignment for hybrids.
"""

from __future__ import annotations

from math import lcm
from typing import Literal

import msgspec

from tonnage.errors import UnknownError, closest_hint
from tonnage.facts.dtype import torch_bits
from tonnage.facts.engine import EngineRules, by_capability
from tonnage.facts.shape import Cache, CompressedCache, IndexCache, KVCache, LatentCache, ModelShape, StateCache
from tonnage.settings import EngineSettings
from tonnage.units import ceil_div

Kind = Literal["full", "sliding", "chunked", "latent", "index", "state", "entries", "ring"]

SPARSE_LATENT_FP8 = 656  # 512 FP8 values, 16 B of scales, 128 B of BF16 rotary part
SPARSE_LATENT_NVFP4 = 352  # `nvfp4_ds_mla`
COMPRESSED_FP8_EXTRA = 8  # scales of a compressed entry beside 448 FP8 values and 128 B of BF16 rotary part
COMPRESSED_ALIGNMENT = 576
CPU_BLOCK = 128  # vLLM's CPU build, and the latent kernels of hybrids

_BITS = {
    "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_inc": 8, "fp8_ds_mla": 8, "int8_per_token_head": 8, "fp8_per_token_head": 8,
    "nvfp4": 4, "nvfp4_ds_mla": 4, "int4_per_token_head": 4, "bfloat16": 16, "float16": 16, "float32": 32,
}  # fmt: skip
CACHE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "int8": "int8_per_token_head", "int4": "int4_per_token_head"}


class Page(msgspec.Struct, frozen=True):
    """One layer's page: the block of tokens it covers, its bytes, and the window that bounds how many are kept.

    Equal pages belong to layers that can share a group. `unpadded` is what the page would take without alignment.
    """

    kind: Kind
    block: int
    bytes: int
    unpadded: int
    window: int = 0
    state: str = ""


def cache_dtype(settings: EngineSettings, shape: ModelShape, dtype: str) -> str:
    """Return the dtype the cache is kept in: as asked, as the checkpoint declares, or the model's own.

    Raises UnknownError: a precision that we have no layout for.
    """
    asked = CACHE_ALIASES.get(settings.kv_cache_dtype.lower(), settings.kv_cache_dtype.lower())
    if asked == "auto":
        return shape.quantisation.kv or dtype
    if asked not in _BITS:
        known = ["auto", *_BITS]
        raise UnknownError(
            f"a cache in {settings.kv_cache_dtype!r} is not known", hint=closest_hint(asked, known, f"known are {', '.join(known)}")
        )
    if asked == "nvfp4_ds_mla" and not any(isinstance(cache, LatentCache) and cache.sparse for cache in shape.caches):
        raise UnknownError(f"a cache in {asked} is for sparse latent attention alone", hint="nvfp4 is the form of other models")
    return asked


def cache_bits(name: str) -> int:
    """Return the width of one cached element, scales left out.

    >>> cache_bits("fp8"), cache_bits("bfloat16"), cache_bits("nvfp4")
    (8, 16, 4)
    """
    return _BITS.get(name) or torch_bits(name)


def head_token_bytes(k_dim: int, v_dim: int, name: str) -> int:
    """Return what one KV head stores for one token: keys, values, and scales where the precision keeps them.

    >>> head_token_bytes(128, 128, "bfloat16"), head_token_bytes(128, 128, "int8_per_token_head")
    (512, 264)
    """
    values = ceil_div((k_dim + v_dim) * cache_bits(name), 8)
    if name.endswith("_per_token_head"):
        return values + 8
    return values + ((k_dim + v_dim) // 16 if name == "nvfp4" else 0)


def latent_token_bytes(cache: LatentCache, name: str) -> int:
    """Return what a latent stores for one token; sparse latents have an FP8 form of their own.

    >>> latent_token_bytes(LatentCache(512, 64), "bfloat16"), latent_token_bytes(LatentCache(512, 64, sparse=True), "fp8")
    (1152, 656)
    """
    if cache.sparse and cache_bits(name) == 8:
        return SPARSE_LATENT_FP8
    if cache.sparse and name == "nvfp4_ds_mla":
        return SPARSE_LATENT_NVFP4
    return ceil_div((cache.latent_dim + cache.rope_dim) * cache_bits(name), 8)


def state_bytes(cache: StateCache, tp: int, dtype: str, override: str = "auto", speculative: int = 0) -> int:
    """Return the fixed state of one layer and sequence on one rank: convolution columns and the recurrent matrix.

    >>> state_bytes(StateCache("gdn", 3, 8192, 32, 128, 128, "float32"), 1, "bfloat16")  # Qwen3.5-4B
    2146304
    """
    shared = cache.group_channels
    local_groups = cache.groups // tp if cache.groups and cache.groups % tp == 0 else 1
    groups = shared // cache.groups * local_groups if cache.groups else 0
    channels = (cache.conv_channels - shared) // tp + groups
    conv = channels * (cache.conv_columns + speculative) * torch_bits(dtype) // 8
    own = dtype if override in ("auto", "") and not cache.state_dtype else (cache.state_dtype if override in ("auto", "") else override)
    width = torch_bits(own)
    matrix = cache.rows // tp * cache.cols if cache.kind == "mamba1" else cache.heads // tp * cache.rows * cache.cols
    return conv + matrix * width // 8


def attention_token_bytes(cache: KVCache | LatentCache, tp: int, name: str) -> int:
    """Return what one attention layer stores for one token on one rank; KV heads beyond their number are replicated.

    >>> attention_token_bytes(KVCache(8, 128, 128), 16, "bfloat16")  # as at TP 8: no gain
    512
    """
    if isinstance(cache, LatentCache):
        return latent_token_bytes(cache, name)
    return max(1, cache.kv_heads // tp) * head_token_bytes(cache.k_dim, cache.v_dim, name)


class PageRules(msgspec.Struct, frozen=True):
    """Everything that decides pages: settings with defaults filled in, the release's rules, the card, the dtypes."""

    settings: EngineSettings
    rules: EngineRules
    capability: tuple[int, int] | None
    dtype: str
    cache: str
    mode: str = "none"


def kernel_block(shape: ModelShape, p: PageRules) -> int:
    """Return the block size the attention backend chooses: 16, or what latent, sparse or very wide heads ask for."""
    if p.settings.block_size:
        return p.settings.block_size
    if p.settings.device == "cpu":
        return CPU_BLOCK
    caches = shape.caches
    own = max((cache.block for cache in caches if isinstance(cache, IndexCache)), default=0)
    if own:
        return own
    if any(isinstance(cache, LatentCache) and cache.sparse for cache in caches):
        return 64
    fp8 = cache_bits(p.cache) == 8
    if fp8 and any(isinstance(cache, LatentCache) for cache in caches):
        return int(by_capability(p.rules.latent_fp8_block, p.capability) or 16)
    if fp8 and any(isinstance(cache, KVCache) and cache.k_dim > 256 for cache in caches):
        return int(by_capability(p.rules.wide_head_block, p.capability) or 16)
    return 16


def prefix_mode(shape: ModelShape, settings: EngineSettings, rules: EngineRules) -> str:
    """Return how a hybrid keeps states: "none" (one a sequence), "align" (the last aligned ones) or "all" (one a block)."""
    if not shape.hybrid or not settings.enable_prefix_caching:
        return "none"
    kinds = {cache.kind for cache in shape.caches if isinstance(cache, StateCache)}
    return rules.mamba2_prefix_mode if "mamba2" in kinds else "align"


def state_alignment(shape: ModelShape, p: PageRules) -> int:
    """Return what the attention block of a hybrid must be a multiple of."""
    latent = any(isinstance(cache, LatentCache) for cache in shape.caches)
    align = p.settings.block_size or (CPU_BLOCK if p.settings.device == "cpu" or latent else 16)
    for cache in shape.caches:
        if isinstance(cache, StateCache):
            if p.mode == "align":
                align = lcm(align, int(by_capability(p.rules.state_alignment.get(cache.kind, {}), p.capability) or 1))
            if p.mode == "all" and cache.chunk:
                align = lcm(align, cache.chunk)
    return align


def hybrid_block(shape: ModelShape, p: PageRules) -> tuple[int, int]:
    """Return (tokens, bytes) of the attention page of a hybrid: the smallest aligned block whose page holds one state.

    `align x ceil(state / (align x bytes a token))`
    """
    tp = p.settings.parallel.tp
    state = max(_state_bytes(cache, p) for cache in shape.caches if isinstance(cache, StateCache))
    per_token = max((attention_token_bytes(c, tp, p.cache) for c in shape.caches if isinstance(c, KVCache | LatentCache)), default=0)
    if not per_token:
        return p.settings.max_model_len or shape.max_position, state
    align = state_alignment(shape, p)
    block = align * ceil_div(state, align * per_token)
    return block, block * per_token


def _state_bytes(cache: StateCache, p: PageRules) -> int:
    return state_bytes(cache, p.settings.parallel.tp, p.dtype, p.settings.mamba_ssm_cache_dtype, p.settings.num_speculative_tokens)


def page_of(cache: Cache, block: int, padded: int, p: PageRules) -> tuple[Page, ...]:
    """Return the page (or pages, for compressed streams) of one layer's cache; `padded` is the page of a hybrid."""
    if isinstance(cache, KVCache):
        size = block * _kv_token_bytes(cache, p)
        kind: Kind = "full" if cache.kind == "full" or p.settings.disable_hybrid_kv_cache_manager else cache.kind
        return (Page(kind, block, size, size, 0 if kind == "full" else cache.window),)
    if isinstance(cache, LatentCache):
        size = block * latent_token_bytes(cache, p.cache)
        return (Page("latent", block, size, size),)
    if isinstance(cache, IndexCache):
        size = block * cache.bytes_per_token
        return (Page("index", block, size, size),)
    if isinstance(cache, StateCache):
        size = _state_bytes(cache, p)
        covered = (p.settings.max_model_len or block) if p.mode == "none" else block
        return (Page("state", covered, max(padded, size), size, state=cache.kind),)
    return _compressed_pages(cache)


def _kv_token_bytes(cache: KVCache, p: PageRules) -> int:
    """Return a token's keys and values as this release pages them: those of unlike widths had no FP8 form, and before no page."""
    name = p.cache
    if cache.k_dim != cache.v_dim and p.rules.unlike_heads == "padded":
        widest = max(cache.k_dim, cache.v_dim)
        cache = msgspec.structs.replace(cache, k_dim=widest, v_dim=widest)
    elif cache.k_dim != cache.v_dim and p.rules.unlike_heads == "unquantised":
        name = p.dtype
    return attention_token_bytes(cache, p.settings.parallel.tp, name)


def _compressed_pages(cache: CompressedCache) -> tuple[Page, ...]:
    """Return DeepSeek-V4's pages, in the engine's order: a window of raw entries; an index; per stream entries and an FP32 ring."""
    entry = cache.dim - cache.rope_dim + 2 * cache.rope_dim + COMPRESSED_FP8_EXTRA
    pages = [_aligned("ring", 64, 64 * entry, cache.window)]
    if cache.ratio:
        overlap, ring = (2, 4) if cache.index_dim else (1, 8)
        if cache.index_dim:
            pages.append(_aligned("entries", 256, 256 // cache.ratio * (cache.index_dim + 4)))
            pages.append(_aligned("ring", ring, ring * 2 * overlap * cache.index_dim * 4, overlap * cache.ratio))
        pages.append(_aligned("entries", 256, 256 // cache.ratio * entry))
        pages.append(_aligned("ring", ring, ring * 2 * overlap * cache.dim * 4, overlap * cache.ratio))
    return tuple(pages)


def _aligned(kind: Kind, block: int, size: int, window: int = 0) -> Page:
    return Page(kind, block, ceil_div(size, COMPRESSED_ALIGNMENT) * COMPRESSED_ALIGNMENT, size, window)
