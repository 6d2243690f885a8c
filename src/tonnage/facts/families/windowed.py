"""Decoders whose windowed layers differ from their full ones in heads or widths: Llama 4, Step 3.5, MiMo V2, Laguna.

Sources: the families' config.json and parameter counts (data/models), and their modelling code.
"""

from __future__ import annotations

from tonnage.errors import InputError
from tonnage.facts.blocks import (
    Tensors,
    attention,
    experts,
    full_cache,
    mlp,
    norms,
    window_cache,
)
from tonnage.facts.config import Config
from tonnage.facts.families.common import assemble, draft_count, interleave, layer_kinds, trunk
from tonnage.facts.families.plain import draft_extra
from tonnage.facts.shape import KVCache, Layer, ModelShape
from tonnage.facts.tensors import Tensor


def read_llama4(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Llama 4: chunked-local attention in three layers of four, experts in every layer or every second."""
    t = trunk(c, outer=outer)
    chunk = c.integer("attention_chunk_size", default=0, low=0)
    plain = c.integers("no_rope_layers")
    listed = layer_kinds(c, t.layers, {"chunked_attention": "chunked", "full_attention": "full"})
    every = c.integer("no_rope_layer_interval", default=4)
    kinds = listed or tuple(
        "full" if (not plain[i] if plain else (i + 1) % every == 0) or not chunk else "chunked" for i in range(t.layers)
    )
    step, ffn = c.integer("interleave_moe_layer_step", default=1), c.integer("intermediate_size_mlp")
    count, inner = c.integer("num_local_experts"), c.integer("intermediate_size")
    chosen = set(c.integers("moe_layers", default=[i for i in range(t.layers) if (i + 1) % step == 0]))
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qkv_bias=c.flag("attention_bias")) + norms(t.hidden, 2)
    mixture = experts(t.hidden, inner, count, module="feed_forward", gate="router") + mlp(
        t.hidden, inner, module="feed_forward.shared_expert"
    )
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn, module="feed_forward")}
    caches = {"full": full_cache(t.kv_heads, t.head_dim), "chunked": KVCache(t.kv_heads, t.head_dim, t.head_dim, "chunked", chunk)}

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), own + feeds[feed])

    names = [f"{kind}+{'moe' if i in chosen else 'dense'}" for i, kind in enumerate(kinds)]
    c.ignore(
        "for_llm_compressor", "attn_temperature_tuning", "floor_scale", "attn_scale", "use_qk_norm", "num_experts_per_tok", "no_rope_layers"
    )
    moe = (count, c.integer("num_experts_per_tok", default=1), inner, inner)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn)


def read_step(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Step 3.5 and 3.7: sliding layers with more heads than full ones, head-wise gates, one shared expert."""
    t = trunk(c, outer=outer)
    kinds = layer_kinds(c, t.layers, {"sliding_attention": "sliding", "full_attention": "full"}) or ("full",) * t.layers
    other = c.child("attention_other_setting")
    heads = other.integer("num_attention_heads", default=t.heads) if other else c.integer("num_sliding_attention_heads", default=96)
    kv_heads = other.integer("num_attention_groups", default=t.kv_heads) if other else t.kv_heads
    window, ffn = c.integer("sliding_window", default=512), c.integer("intermediate_size")
    count, per_token = c.integer("moe_num_experts", "num_experts"), c.integer("moe_top_k", "num_experts_per_tok")
    inner, shared = c.integer("moe_intermediate_size"), c.integer("share_expert_dim", "share_expert_dims", default=0, low=0)
    first = c.integer("first_k_dense_replace", default=3, low=0)
    chosen = set(c.integers("moe_layers_enum", default=range(first, t.layers)))
    gate = c.flag("use_head_wise_attn_gate", default=True)
    mixture = experts(t.hidden, inner, count, module="moe", correction=True) + mlp(t.hidden, shared, module="share_expert")
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn)}
    caches = {"full": full_cache(t.kv_heads, t.head_dim), "sliding": window_cache(kv_heads, t.head_dim, window)}
    own = {
        "full": _step_attention(t.hidden, t.heads, t.kv_heads, t.head_dim, gate),
        "sliding": _step_attention(t.hidden, heads, kv_heads, t.head_dim, gate),
    }

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), own[mixer] + norms(t.hidden, 2) + feeds[feed])

    names = [f"{kind}+{'moe' if i in chosen else 'dense'}" for i, kind in enumerate(kinds)]
    extra_layers = draft_count(c)
    draft = (build("sliding+dense"),) * extra_layers
    extra = draft_extra(t, extra_layers, norms_each=3, own_embedding=False) if extra_layers else ()
    extra += (
        (Tensor("mtp.shared_head.head", t.vocab, t.hidden, "vocab", "draft", count=extra_layers, linear=False),) if extra_layers else ()
    )
    c.ignore("n_shared_experts", "num_sliding_attention_heads", "moe_layers_enum")
    moe = (count, per_token, inner, shared)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn, draft=draft, draft_extra=extra)


def _step_attention(hidden: int, heads: int, kv_heads: int, head_dim: int, gate: bool) -> Tensors:
    own = attention(hidden, heads, kv_heads, head_dim, qk_norm=head_dim)
    return own + ((Tensor("self_attn.g_proj", heads, hidden, "column", "attention"),) if gate else ())


def read_mimo_v2(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return MiMo V2: sliding layers with sinks beside full ones, values narrower than keys, experts after the first layer."""
    t = trunk(c, outer=outer)
    v_dim = c.integer("v_head_dim", default=t.head_dim)
    heads, kv_heads = c.integer("swa_num_attention_heads", default=t.heads), c.integer("swa_num_key_value_heads", default=t.kv_heads)
    head_dim, wide = c.integer("swa_head_dim", default=t.head_dim), c.integer("swa_v_head_dim", default=v_dim)
    window, pattern = c.integer("sliding_window", "sliding_window_size"), c.integers("hybrid_layer_pattern")
    sparse = c.integers("moe_layer_freq", default=[1] * t.layers)
    if len(pattern) != t.layers or len(sparse) != t.layers:
        raise InputError(f"hybrid_layer_pattern or moe_layer_freq has not {t.layers} entries", where=c.where)
    ffn, inner, count = c.integer("intermediate_size"), c.integer("moe_intermediate_size"), c.integer("n_routed_experts")
    shared = inner * c.integer("n_shared_experts", default=0, low=0)
    bias = c.flag("attention_bias")
    sink_window, sink_full = c.flag("add_swa_attention_sink_bias"), c.flag("add_full_attention_sink_bias")
    own = {
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, v_dim=v_dim, qkv_bias=bias, sinks=sink_full),
        "sliding": attention(t.hidden, heads, kv_heads, head_dim, v_dim=wide, qkv_bias=bias, sinks=sink_window),
    }
    caches = {"full": full_cache(t.kv_heads, t.head_dim, v_dim), "sliding": window_cache(kv_heads, head_dim, window, wide)}
    feeds = {
        "moe": experts(t.hidden, inner, count, correction=True) + (mlp(t.hidden, shared, module="mlp.shared_experts") if shared else ()),
        "dense": mlp(t.hidden, ffn),
    }

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), own[mixer] + norms(t.hidden, 2) + feeds[feed])

    names = [f"{'sliding' if pattern[i] else 'full'}+{'moe' if sparse[i] else 'dense'}" for i in range(t.layers)]
    c.ignore("attention_chunk_size", "moe_layer_freq")
    moe = (count, c.integer("num_experts_per_tok"), inner, shared)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn)


def read_laguna(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Laguna: full and sliding layers with heads of their own, gated by head; sigmoid-routed experts with one shared."""
    t = trunk(c, outer=outer)
    listed = layer_kinds(c, t.layers, {"sliding_attention": "sliding", "full_attention": "full"})
    kinds = listed or tuple("full" if i % 4 == 0 else "sliding" for i in range(t.layers))
    own_heads = c.integers("num_attention_heads_per_layer", low=1) or tuple(
        t.heads if kind == "full" else t.heads * 4 // 3 for kind in kinds
    )
    if len(own_heads) != t.layers:
        raise InputError(f"num_attention_heads_per_layer has {len(own_heads)} entries for {t.layers} layers", where=c.where)
    window = c.integer("sliding_window", default=0, low=0)
    inner, count, shared = (
        c.integer("moe_intermediate_size"),
        c.integer("num_experts"),
        c.integer("shared_expert_intermediate_size", default=0, low=0),
    )
    ffn, bias = c.integer("intermediate_size"), c.flag("attention_bias")
    mixture = experts(t.hidden, inner, count, correction=True) + (mlp(t.hidden, shared, module="mlp.shared_expert") if shared else ())
    caches = {"full": full_cache(t.kv_heads, t.head_dim), "sliding": window_cache(t.kv_heads, t.head_dim, max(1, window))}
    plain = set(c.integers("mlp_only_layers", default=[0]))
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn)}

    def build(kind: str) -> Layer:
        mixer, heads, feed = kind.split("+")
        own = attention(t.hidden, int(heads), t.kv_heads, t.head_dim, qk_norm=t.head_dim, qkv_bias=bias)
        gate = Tensor("self_attn.g_proj", int(heads), t.hidden, "column", "attention")
        return Layer(mixer, (caches[mixer],), (*own, gate, *norms(t.hidden, 2), *feeds[feed]))

    names = [f"{kind}+{heads}+{'dense' if i in plain else 'moe'}" for i, (kind, heads) in enumerate(zip(kinds, own_heads, strict=True))]
    c.ignore("gating", "moe_apply_router_weight_on_input", "swa_rope_parameters", "moe_router_logit_softcapping", "mlp_layer_types")
    moe = (count, c.integer("num_experts_per_tok"), inner, shared)
    assumed = (
        ()
        if listed
        else ("one full-attention layer in four, sliding layers with a third more heads: the class default; the config does not say",)
    )
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn, assumed=assumed)
