"""Decoders that fit no other room: Nemotron NAS, MiniMax, Llama 3.2 Vision; and encoders, which cache nothing.

Sources: the families' config.json and parameter counts (data/models), and their modelling code.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import (
    Tensors,
    attention,
    experts,
    full_cache,
    mlp,
    norms,
)
from tonnage.facts.config import SMALLEST, Config
from tonnage.facts.families.common import assemble, interleave, trunk, vector
from tonnage.facts.shape import Cache, IndexCache, KVCache, Layer, ModelShape, StateCache
from tonnage.facts.tensors import Tensor


def read_deci(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Nemotron NAS (DeciLM): every block states its own KV heads and MLP width, or has neither."""
    blocks = c.raw("block_configs")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise InputError("field 'block_configs' is not a list of objects", where=c.where)
    t = trunk(c, layers=len(blocks), outer=outer)
    known: dict[str, Layer] = {}
    layers = []
    for block in blocks:
        key = repr(block)
        if key not in known:
            known[key] = _deci_layer(Config(block, f"{c.where}: block_configs"), t.hidden, t.heads, t.head_dim)
        layers.append(known[key])
    c.ignore("num_hidden_layers", "intermediate_size")
    kv = max((cache.kv_heads for layer in layers for cache in layer.caches if isinstance(cache, KVCache)), default=t.kv_heads)
    return assemble(c, architecture, msgspec.structs.replace(t, kv_heads=kv), layers, vision=vision)


def _deci_layer(block: Config, hidden: int, heads: int, head_dim: int) -> Layer:
    mixer, feed = block.child("attention"), block.child("ffn")
    if mixer is None or feed is None:
        raise InputError("a block has no 'attention' or no 'ffn'", where=block.where)
    for part in (mixer, feed):
        if part.flag("replace_with_linear"):
            raise UnknownError(
                "field 'replace_with_linear' is set, which is not understood", where=block.where, hint="--assume full-attention"
            )
    if mixer.raw("window_length") is not None or mixer.raw("num_sink_tokens") is not None:
        raise UnknownError(
            "field 'window_length' is set in a block, which is not understood", where=block.where, hint="--assume full-attention"
        )
    tensors: Tensors = ()
    caches: tuple[Cache, ...] = ()
    if not mixer.flag("no_op"):
        group = mixer.integer("n_heads_in_group")
        if heads % group:
            raise InputError(f"num_attention_heads {heads} is not a multiple of n_heads_in_group {group}", where=mixer.where)
        kv_heads = heads // group
        tensors += attention(hidden, heads, kv_heads, head_dim) + norms(hidden, 1)
        caches = (full_cache(kv_heads, head_dim),)
    if not feed.flag("no_op"):
        width = int(2 * feed.number("ffn_mult", low=SMALLEST) * hidden / 3)
        tensors += mlp(hidden, -(-width // 256) * 256) + norms(hidden, 1)
    return Layer("full" if caches else "no attention", caches, tensors)


def read_minimax_m1(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return MiniMax-M1: lightning attention with one full layer in eight, and experts (arXiv 2506.13585)."""
    t = trunk(c, outer=outer)
    pattern = c.integers("attn_type_list") or tuple(1 if (i + 1) % 8 == 0 else 0 for i in range(t.layers))
    if len(pattern) < t.layers:
        raise InputError(f"attn_type_list has not {t.layers} entries", where=c.where)
    count, inner = c.integer("num_local_experts"), c.integer("intermediate_size")
    width = t.heads * t.head_dim
    linear = (
        Tensor("self_attn.qkv_proj", 3 * width, t.hidden, "column", "state"),
        Tensor("self_attn.output_gate", width, t.hidden, "column", "state"),
        Tensor("self_attn.out_proj", t.hidden, width, "row", "state"),
        vector("self_attn.norm", width, "state", "column"),
    )
    feed = norms(t.hidden, 2) + experts(t.hidden, inner, count, module="block_sparse_moe")
    caches: dict[str, Cache] = {
        "full": full_cache(t.kv_heads, t.head_dim),
        "linear": StateCache("linear", 0, 0, t.heads, t.head_dim, t.head_dim, "float32"),
    }
    own = {"full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim), "linear": linear}

    def build(kind: str) -> Layer:
        return Layer(kind, (caches[kind],), own[kind] + feed)

    moe = (count, c.integer("num_experts_per_tok"), inner, 0)
    assumed = () if c.has("attn_type_list") else ("one full-attention layer in eight; the config does not list them",)
    return assemble(
        c,
        architecture,
        t,
        interleave(["full" if kind else "linear" for kind in pattern[: t.layers]], build),
        vision=vision,
        moe=moe,
        assumed=assumed,
    )


def read_minimax_m3(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return MiniMax-M3: sparse attention over blocks, with an index of one key a token in its sparse layers, and experts."""
    t = trunk(c, outer=outer)
    sparse = c.child("sparse_attention_config")
    flags = sparse.integers("sparse_attention_freq") if sparse else ()
    index_dim = sparse.integer("sparse_index_dim", default=128) if sparse else 0
    index_heads = sparse.integer("sparse_num_index_heads", default=4) if sparse else 0
    freq = c.integers("moe_layer_freq", default=[1] * t.layers)
    if len(freq) != t.layers:
        raise InputError(f"moe_layer_freq has {len(freq)} entries for {t.layers} layers", where=c.where)
    count, inner = c.integer("num_local_experts", "n_routed_experts"), c.integer("moe_intermediate_size", "intermediate_size")
    shared = c.integer("shared_intermediate_size", default=0, low=0) or inner * c.integer("n_shared_experts", default=0, low=0)
    ffn = c.integer("dense_intermediate_size", "intermediate_size")
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim if c.flag("use_qk_norm") else 0) + norms(t.hidden, 2)
    index = (
        Tensor("self_attn.index_q_proj", index_heads * index_dim, t.hidden, "replicated", "attention"),
        Tensor("self_attn.index_k_proj", index_dim, t.hidden, "replicated", "attention"),
        vector("self_attn.index_norms", index_dim, count=2),
    )
    mixture = experts(t.hidden, inner, count, correction=True, module="block_sparse_moe") + mlp(
        t.hidden, shared, module="block_sparse_moe.shared_experts"
    )
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn)}

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        caches: tuple[Cache, ...] = (full_cache(t.kv_heads, t.head_dim),)
        return Layer(
            mixer,
            (*caches, IndexCache(2 * index_dim, 128)) if mixer == "sparse" else caches,
            own + (index if mixer == "sparse" else ()) + feeds[feed],
        )

    names = [f"{'sparse' if i < len(flags) and flags[i] else 'full'}+{'moe' if freq[i] else 'dense'}" for i in range(t.layers)]
    c.ignore("first_k_dense_replace", "qk_norm_type", "num_mtp_modules", "n_shared_experts", "moe_intermediate_size")
    moe = (count, c.integer("num_experts_per_tok"), inner, shared)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn)


def read_mllama(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return the text model of Llama 3.2 Vision: every fifth layer attends to the image and caches its keys and values instead."""
    t = trunk(c, outer=outer)
    default = [3, 8, 13, 18, 23, 28, 33, 38] if t.layers == 40 else list(range(3, t.layers, 5))
    cross = set(c.integers("cross_attention_layers", default=default))
    ffn = c.integer("intermediate_size")
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim) + norms(t.hidden, 2) + mlp(t.hidden, ffn)
    seen = (*own, vector("cross_attn.q_norm", t.head_dim, count=2), vector("cross_attn.gates", 1, count=2))
    cache = full_cache(t.kv_heads, t.head_dim)
    layers = [Layer("cross", (cache,), seen) if i in cross else Layer("full", (cache,), own) for i in range(t.layers)]
    extra = (Tensor("model.image_tokens", 8, t.hidden, "replicated", "embedding", linear=False),)
    assumed = ("image tokens in cross-attention layers are counted as text",)
    return assemble(c, architecture, t, layers, vision=vision, embedding=extra, ffn=ffn, assumed=assumed)


def read_encoder(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return an encoder for embeddings or scores (XLM-RoBERTa, BERT): no cache at all."""
    t = trunk(c, outer=outer)
    ffn = c.integer("intermediate_size")
    own = (
        attention(t.hidden, t.heads, t.heads, t.head_dim, qkv_bias=True, o_bias=True)
        + norms(t.hidden, 4)
        + mlp(t.hidden, ffn, gated=False, bias=True)
    )
    positions = t.max_position + c.integer("type_vocab_size", default=2)
    extra = (
        Tensor("embeddings.positions", positions, t.hidden, "replicated", "embedding", linear=False),
        vector("embeddings.norm", t.hidden, count=2),
    )
    head: Tensors = (Tensor("pooler.dense", t.hidden, t.hidden, "replicated", "lm_head"), vector("pooler.bias", t.hidden, "lm_head"))
    if architecture.endswith("SequenceClassification"):
        head += (vector("classifier.out_proj", t.hidden + 1, "lm_head"),)
    shape = assemble(
        c,
        architecture,
        msgspec.structs.replace(t, tied=True),
        (Layer("encoder", (), own),) * t.layers,
        final=head,
        embedding=extra,
        ffn=ffn,
        rope=(),
    )
    return msgspec.structs.replace(shape, embeds_only=True)
