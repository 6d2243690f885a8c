"""What is true of a model, whoever asks: its layers by kind, what each caches, and every weight.

`ModelShape` is a value. `model.py` makes it from a config.json; `memory/` turns it into bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from tonnage.facts.quantisation import Quantisation
from tonnage.facts.tensors import Tensor, elements


class KVCache(msgspec.Struct, frozen=True):
    """Keys and values of one attention layer, per token: `kv_heads x (k_dim + v_dim)` elements.

    `window` bounds the tokens that are kept: the sliding window, or the chunk of chunked-local attention; 0 keeps all.
    """

    kv_heads: int
    k_dim: int
    v_dim: int
    kind: Literal["full", "sliding", "chunked"] = "full"
    window: int = 0


class LatentCache(msgspec.Struct, frozen=True):
    """The latent of multi-head latent attention: one vector a token, shared by all heads, replicated on every rank.

    `sparse` marks DeepSeek sparse attention, whose FP8 form is 656 bytes a token (`fp8_ds_mla`).
    """

    latent_dim: int
    rope_dim: int
    sparse: bool = False


class IndexCache(msgspec.Struct, frozen=True):
    """Keys of a sparse-attention index, per token, in a format of their own whatever the cache's dtype.

    DeepSeek's indexer stores 128 FP8 elements and an FP32 scale: 132 bytes; MiniMax-M3 128 BF16 elements: 256 bytes, in
    blocks of 128 tokens (`block`; 0 leaves the choice to the engine).
    """

    bytes_per_token: int
    block: int = 0


class CompressedCache(msgspec.Struct, frozen=True):
    """One compressed stream of DeepSeek-V4: an entry for every `ratio` tokens, and a window of raw ones."""

    dim: int
    rope_dim: int
    ratio: int
    window: int
    index_dim: int = 0


class StateCache(msgspec.Struct, frozen=True):
    """Fixed state of one recurrent layer, per sequence: convolution columns and a recurrent matrix.

    `conv_columns x conv_channels` elements in the model's dtype and `heads x rows x cols` in `state_dtype`
    ("" is the model's dtype). `groups` is the count of B and C groups of Mamba2, which ranks replicate where they do not divide;
    `chunk` its scan's chunk, to which some releases align cached states. "flashkda" is KDA as Kimi-K3 runs it.
    """

    kind: Literal["gdn", "kda", "flashkda", "mamba2", "mamba1", "short_conv", "linear"]
    conv_columns: int
    conv_channels: int
    heads: int = 0
    rows: int = 0
    cols: int = 0
    state_dtype: str = ""
    groups: int = 0
    group_channels: int = 0
    chunk: int = 0

    @property
    def conv_elements(self) -> int:
        """Elements of the convolution state before sharding."""
        return self.conv_columns * self.conv_channels

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state before sharding."""
        return self.heads * self.rows * self.cols


Cache = KVCache | LatentCache | IndexCache | CompressedCache | StateCache


class RopeTable(msgspec.Struct, frozen=True):
    """A rotary table an engine keeps: cosines and sines of `positions` x `width`; `bits` 0 is the served dtype.

    `sections` tells multimodal tables, of which some releases keep four times the positions.
    """

    positions: int
    width: int
    bits: int = 0
    sections: Literal["", "plain", "interleaved"] = ""


class Layer(msgspec.Struct, frozen=True):
    """One decoder layer: what it caches and what it weighs. `kind` is the word a person reads in a list of layers."""

    kind: str
    caches: tuple[Cache, ...]
    tensors: tuple[Tensor, ...]


class ModelShape(msgspec.Struct, frozen=True, dict=True):
    """A model as the memory arithmetic sees it. Sizes in elements and tokens; widths in bits; nothing sharded."""

    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_position: int
    dtype: str
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    embedding: tuple[Tensor, ...]
    head: tuple[Tensor, ...]
    tied: bool
    vision: tuple[Tensor, ...] = ()
    draft: tuple[Layer, ...] = ()
    draft_extra: tuple[Tensor, ...] = ()
    quantisation: Quantisation = Quantisation()
    rope_tables: tuple[RopeTable, ...] = ()
    experts: int = 0
    experts_per_token: int = 0
    expert_hidden: int = 0
    ffn_hidden: int = 0
    shared_hidden: int = 0
    embeds_only: bool = False
    head_everywhere: bool = False
    assumed: tuple[str, ...] = ()

    @cached_property
    def params_total(self) -> int:
        """Unique parameters, vision tower and draft layers included; a tied head counts once."""
        own = elements(self.embedding) + elements(self.head) + elements(self.vision) + elements(self.draft_extra)
        return own + sum(elements(layer.tensors) for layer in (*self.layers, *self.draft))

    @cached_property
    def params_active(self) -> int:
        """Parameters one token touches: all but unselected experts, and without the draft layers."""
        unused = self.experts - self.experts_per_token
        if not self.experts:
            idle = 0
        else:
            routed = sum(t.elements for layer in self.layers for t in layer.tensors if t.experts)
            idle = routed * unused // self.experts
        drafted = sum(elements(layer.tensors) for layer in self.draft) + elements(self.draft_extra)
        return self.params_total - idle - drafted

    @property
    def caches(self) -> tuple[Cache, ...]:
        """What every layer caches, in order, draft layers left out."""
        return tuple(cache for layer in self.layers for cache in layer.caches)

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a state of fixed size instead of keys and values."""
        return any(isinstance(cache, StateCache) for cache in self.caches)

    @property
    def latent(self) -> bool:
        """Whether the attention is latent (MLA): one cache vector for all heads."""
        return any(isinstance(cache, LatentCache | CompressedCache) for cache in self.caches)
