"""Gemma 3, 3n and 4: windows with one full layer in a few, shared caches, per-layer embeddings, values that are keys.

Sources: the families' config.json and parameter counts (data/models).
"""

from __future__ import annotations

import msgspec

from tonnage.facts.blocks import Tensors, attention, experts, full_cache, mlp, norms, window_cache
from tonnage.facts.config import Config
from tonnage.facts.families.common import assemble, interleave, layer_kinds, pattern_kinds, rope_table, same_in_all, trunk, vector
from tonnage.facts.shape import Cache, Layer, ModelShape, RopeTable
from tonnage.facts.tensors import Tensor

_KINDS = {"sliding_attention": "sliding", "full_attention": "full"}


def read_gemma3(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Gemma 3: five sliding layers, then a full one; four norms a layer; head norms."""
    t = trunk(
        _with_defaults(c, num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=262_208, max_position_embeddings=131_072),
        tied=True,
        outer=outer,
    )
    every = c.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kinds = layer_kinds(c, t.layers, _KINDS) or pattern_kinds(t.layers, every, odd="full", common="sliding")
    window, ffn = c.integer("sliding_window", default=4096), c.integer("intermediate_size")
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim) + norms(t.hidden, 4) + mlp(t.hidden, ffn)
    caches = {"full": full_cache(t.kv_heads, t.head_dim), "sliding": window_cache(t.kv_heads, t.head_dim, window)}

    def build(kind: str) -> Layer:
        return Layer(kind, (caches[kind],), own)

    rope = (rope_table(c, t.max_position, t.head_dim, name="full_attention"), RopeTable(t.max_position, t.head_dim))
    c.ignore("sliding_window_pattern", "_sliding_window_pattern", "query_pre_attn_scalar", "attention_bias", "rope_scaling")
    return assemble(c, architecture, t, interleave(kinds, build), vision=vision, ffn=ffn, rope=rope)


def _with_defaults(c: Config, **defaults: int) -> Config:
    """Return the config with the class defaults of transformers for fields that Gemma 3 configs leave out."""
    missing = {name: value for name, value in defaults.items() if not c.has(name)}
    return c.filled(missing)


def read_gemma3n(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Gemma 3n: AltUp, LAuReL, per-layer embeddings; the last layers read the caches of earlier ones."""
    t = trunk(c, tied=True, outer=outer, vocab=262_400)
    kinds = layer_kinds(c, t.layers, _KINDS) or pattern_kinds(t.layers, 5, odd="full", common="sliding")
    window, ffn = c.integer("sliding_window", default=512), same_in_all(c, "intermediate_size")
    shared = c.integer("num_kv_shared_layers", default=0, low=0)
    ple, ple_vocab = c.integer("hidden_size_per_layer_input", default=256), c.integer("vocab_size_per_layer_input", default=262_144)
    streams, rank = c.integer("altup_num_inputs", default=4), c.integer("laurel_rank", default=64)
    extra = (
        Tensor("altup.prediction_coefs", streams * streams, streams, "replicated", "mlp", linear=False),
        Tensor("altup.correction_coefs", streams, streams, "replicated", "mlp", linear=False),
        Tensor("altup.modality_router", streams, t.hidden, "replicated", "router", linear=False),
        vector("altup.norms", t.hidden, count=2),
        Tensor("laurel.linear_left", rank, t.hidden, "replicated", "mlp"),
        Tensor("laurel.linear_right", t.hidden, rank, "replicated", "mlp"),
        Tensor("per_layer_input_gate", ple, t.hidden, "replicated", "mlp"),
        Tensor("per_layer_projection", t.hidden, ple, "replicated", "mlp"),
        vector("laurel_and_ple_norms", t.hidden, count=2),
    )
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim) + norms(t.hidden, 4) + mlp(t.hidden, ffn) + extra
    caches = {"full": full_cache(t.kv_heads, t.head_dim), "sliding": window_cache(t.kv_heads, t.head_dim, window)}

    def build(kind: str) -> Layer:
        return Layer(kind, (), own) if kind.endswith("shared") else Layer(kind, (caches[kind],), own)

    names = [kind if index < t.layers - shared else f"{kind} shared" for index, kind in enumerate(kinds)]
    embedding = (
        Tensor("model.embed_tokens_per_layer", ple_vocab, ple * t.layers, "vocab", "embedding", linear=False),
        Tensor("model.per_layer_model_projection", ple * t.layers, t.hidden, "column", "embedding"),
        Tensor("model.altup_projections", t.hidden, t.hidden, "replicated", "embedding", count=2 * (streams - 1)),
        vector("model.per_layer_projection_norm", ple),
    )
    c.ignore("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern")
    rope = (RopeTable(t.max_position, t.head_dim),) * 2
    return assemble(c, architecture, t, interleave(names, build), embedding=embedding, vision=vision, ffn=ffn, rope=rope)


def read_gemma4(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Gemma 4: wider heads on full layers, whose values may be the keys; experts beside the MLP; shared caches."""
    t = trunk(c, tied=True, outer=outer)
    kinds = layer_kinds(c, t.layers, _KINDS) or pattern_kinds(t.layers, 6, odd="full", common="sliding")
    window, ffn = c.integer("sliding_window", default=512), c.integer("intermediate_size")
    wide = c.integer("global_head_dim", default=t.head_dim)
    same = c.flag("attention_k_eq_v")
    wide_kv = c.integer("num_global_key_value_heads", default=t.kv_heads) if same else t.kv_heads
    c.ignore("num_global_key_value_heads")
    shared = c.integer("num_kv_shared_layers", default=0, low=0)
    double = c.flag("use_double_wide_mlp")
    moe, mixture = _gemma4_experts(c, t.hidden)
    extra, embedding = _gemma4_inputs(c, t.hidden, t.layers)
    mixers = {
        "sliding": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim),
        "full": attention(t.hidden, t.heads, wide_kv, wide, qk_norm=wide, share_kv=same),
    }
    caches: dict[str, Cache] = {"full": full_cache(wide_kv, wide), "sliding": window_cache(t.kv_heads, t.head_dim, window)}

    def build(kind: str) -> Layer:
        word = kind.split()[0]
        width = ffn * 2 if double and kind.endswith("shared") else ffn
        mixer = _reading_only(mixers[word]) if kind.endswith("shared") else mixers[word]
        own = mixer + norms(t.hidden, 4) + mlp(t.hidden, width) + mixture + extra + (vector("layer_scalar", 1),)
        return Layer(kind, () if kind.endswith("shared") else (caches[word],), own)

    names = [kind if index < t.layers - shared else f"{kind} shared" for index, kind in enumerate(kinds)]
    rope = (RopeTable(t.max_position, wide), RopeTable(t.max_position, t.head_dim))
    c.ignore("rope_parameters", "num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    return assemble(c, architecture, t, interleave(names, build), embedding=embedding, vision=vision, moe=moe, ffn=ffn, rope=rope)


def _reading_only(mixer: Tensors) -> Tensors:
    """Return an attention that reads another layer's cache: the checkpoint holds its key and value projections, no engine loads them."""
    return tuple(msgspec.structs.replace(t, loaded=False) if t.share == "kv" else t for t in mixer)


def _gemma4_experts(c: Config, hidden: int) -> tuple[tuple[int, int, int, int], Tensors]:
    if not c.flag("enable_moe_block"):
        return (0, 0, 0, 0), ()
    count, inner, per_token = (
        c.integer("num_experts"),
        c.integer("moe_intermediate_size", "expert_intermediate_size"),
        c.integer("top_k_experts", "num_experts_per_tok"),
    )
    tensors = experts(hidden, inner, count, module="moe", gate="router")
    tensors += (vector("router.scale", hidden, "router"), vector("moe.per_expert_scale", count, "router"), *norms(hidden, 3))
    return (count, per_token, inner, 0), tensors


def _gemma4_inputs(c: Config, hidden: int, layers: int) -> tuple[Tensors, Tensors]:
    ple, vocab = c.integer("hidden_size_per_layer_input", default=0, low=0), c.integer("vocab_size_per_layer_input", default=262_144)
    if not ple:
        return (), ()
    layer = (
        Tensor("per_layer_input_gate", ple, hidden, "replicated", "mlp"),
        Tensor("per_layer_projection", hidden, ple, "replicated", "mlp"),
        vector("post_per_layer_input_norm", hidden),
    )
    embedding = (
        Tensor("model.embed_tokens_per_layer", vocab, ple * layers, "vocab", "embedding", linear=False),
        Tensor("model.per_layer_model_projection", ple * layers, hidden, "column", "embedding"),
        vector("model.per_layer_projection_norm", ple),
    )
    return layer, embedding
