"""The ideal cost of context: bytes per token and fixed state, before any paging.

    growth per token = 2 (key, value) x layers that keep every token x KV heads on the rank x head_dim x bytes

Sliding layers stop growing at their window; a latent is counted whole on every rank; a state is fixed per sequence.
Sources: the models' config.json; arXiv 2405.04434 (latent attention).
"""

from __future__ import annotations

import msgspec

from tonnage.facts.shape import CompressedCache, IndexCache, KVCache, LatentCache, ModelShape, StateCache
from tonnage.memory.pages import COMPRESSED_FP8_EXTRA, attention_token_bytes, state_bytes


class ContextCost(msgspec.Struct, frozen=True):
    """What a sequence costs on one rank: bytes each token adds for good, bytes per token within a window, fixed state.

    `windows` holds (window in tokens, bytes per token) for layers that keep only so many; `conv_bytes` are those of the
    fixed state that belong to convolutions; `strided` holds (ratio, bytes) of layers that keep one entry every so many tokens.
    """

    per_token: int
    windows: tuple[tuple[int, int], ...]
    state_bytes: int
    conv_bytes: int = 0
    strided: tuple[tuple[int, int], ...] = ()

    def growth(self, tokens: int) -> int:
        """Return what one more token costs a sequence of so many: windows that are full no longer grow."""
        windowed = sum(size for window, size in self.windows if window >= tokens)
        return self.per_token + windowed + sum(size // ratio for ratio, size in self.strided)

    def sequence_bytes(self, tokens: int, *, state: bool = True) -> int:
        """Return the bytes of a sequence of so many tokens."""
        windowed = sum(min(tokens, window) * size for window, size in self.windows)
        entries = sum(tokens // ratio * size for ratio, size in self.strided)
        return self.per_token * tokens + windowed + entries + (self.state_bytes if state else 0)


def context_cost(
    shape: ModelShape,
    *,
    tp: int = 1,
    dcp: int = 1,
    cache: str = "bfloat16",
    dtype: str = "bfloat16",
    state_dtype: str = "auto",
    mtp: bool = False,
) -> ContextCost:
    """Return the ideal cost of context on one rank, in a cache precision.

    `mtp` adds the draft layer's own cache; with decode context parallelism a rank keeps every dcp-th token.
    """
    per_token, state, conv = 0, 0, 0
    windows: dict[int, int] = {}
    strided: dict[int, int] = {}
    layers = (*shape.layers, *(shape.draft[:1] if mtp else ()))
    for layer in layers:
        for item in layer.caches:
            if isinstance(item, KVCache):
                size = attention_token_bytes(item, tp, cache)
                if item.kind == "full":
                    per_token += size
                else:
                    windows[item.window] = windows.get(item.window, 0) + size
            elif isinstance(item, LatentCache):
                per_token += attention_token_bytes(item, tp, cache)
            elif isinstance(item, IndexCache):
                per_token += item.bytes_per_token
            elif isinstance(item, StateCache):
                whole = state_bytes(item, tp, dtype, state_dtype)
                state += whole
                conv += whole - _matrix_bytes(item, tp, dtype, state_dtype)
            else:
                state += _compressed(item, windows, strided)
    return ContextCost(-(-per_token // dcp), tuple(sorted(windows.items())), state, conv, tuple(sorted(strided.items())))


def _matrix_bytes(item: StateCache, tp: int, dtype: str, override: str) -> int:
    return state_bytes(msgspec.structs.replace(item, conv_columns=0), tp, dtype, override)


def _compressed(item: CompressedCache, windows: dict[int, int], strided: dict[int, int]) -> int:
    """Add one layer of DeepSeek-V4: raw entries of the window, compressed entries every `ratio` tokens; return its FP32 rings."""
    entry = item.dim + item.rope_dim + COMPRESSED_FP8_EXTRA
    windows[item.window] = windows.get(item.window, 0) + entry
    if not item.ratio:
        return 0
    strided[item.ratio] = strided.get(item.ratio, 0) + entry + (item.index_dim + 4 if item.index_dim else 0)
    overlap = 2 if item.index_dim else 1
    return overlap * item.ratio * 2 * overlap * (item.dim + item.index_dim) * 4


def ideal_users(pool_bytes: int, cost: ContextCost, tokens: int, shared_tokens: int = 0) -> int:
    """Return floor(pool / bytes of a sequence); a shared prefix is stored once.

    >>> cost = ContextCost(16_384, (), 51_511_296)  # Qwen3.5-4B, FP8 cache
    >>> ideal_users(14_710_000_000, cost, 16_000)  # 13.7 GiB
    46
    """
    once = cost.sequence_bytes(shared_tokens, state=False) if shared_tokens else 0
    each = cost.sequence_bytes(tokens) - once
    if pool_bytes <= once:
        return 0
    return (pool_bytes - once) // each if each > 0 else 0
