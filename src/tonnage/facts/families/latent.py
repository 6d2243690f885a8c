"""Decoders with multi-head latent attention: DeepSeek V2, V3, V3.2 (sparse), Kimi K2, GLM-4.7-Flash, GLM-5, LongCat.

Sources: arXiv 2405.04434, 2412.19437; the families' config.json and parameter counts (data/models).
"""

from __future__ import annotations

import msgspec

from tonnage.facts.blocks import Tensors, index_cache, indexer, latent_attention, latent_cache
from tonnage.facts.config import Config
from tonnage.facts.families.common import Trunk, assemble, draft_count, experts, interleave, mlp, norms, trunk
from tonnage.facts.families.plain import draft_extra
from tonnage.facts.shape import Cache, Layer, ModelShape, RopeTable


class Latent(msgspec.Struct, frozen=True):
    """The ranks and widths of latent attention."""

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    v_dim: int


def latent(c: Config) -> Latent:
    """Read the ranks and widths of latent attention."""
    return Latent(
        c.integer("q_lora_rank", default=0, low=0),
        c.integer("kv_lora_rank"),
        c.integer("qk_nope_head_dim"),
        c.integer("qk_rope_head_dim", low=0),
        c.integer("v_head_dim"),
    )


def latent_tensors(t: Trunk, m: Latent, *, gate: bool = False) -> Tensors:
    """Return the projections of one latent-attention layer."""
    return latent_attention(
        t.hidden, t.heads, q_rank=m.q_rank, kv_rank=m.kv_rank, nope=m.nope, rope=m.rope, v_dim=m.v_dim, output_gate=gate
    )


def deepseek_experts(c: Config, t: Trunk, *, correction: bool) -> tuple[tuple[int, int, int, int], Tensors]:
    """Return a DeepSeek-style mixture: routed experts, and shared ones as one wide MLP."""
    count = c.integer("n_routed_experts", "num_experts", "num_local_experts")
    inner = c.integer("moe_intermediate_size")
    per_token = c.integer("num_experts_per_tok", "num_experts_per_token", "moe_topk")
    shared = inner * c.integer("n_shared_experts", "num_shared_experts", default=0, low=0)
    c.ignore("num_experts", "moe_layer_freq")
    tensors = experts(t.hidden, inner, count, correction=correction)
    if shared:
        tensors += mlp(t.hidden, shared, module="mlp.shared_experts")
    return (count, per_token, inner, shared), tensors


def read(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return the shape of a DeepSeek-style model; `index_topk` makes it sparse (an indexer and its cache per layer)."""
    t = trunk(c, outer=outer)
    m = latent(c)
    c.ignore("head_dim", "qk_head_dim", "layer_types")
    sparse = c.has("index_topk") or c.has("index_head_dim")
    moe, mixture = deepseek_experts(c, t, correction=_corrected(c))
    ffn = c.integer("intermediate_size")
    dense = mlp(t.hidden, ffn)
    index = _indexer(c, t, m) if sparse else ()
    full = c.texts("indexer_types")
    c.ignore("index_skip_topk_offset", "index_topk_freq", "index_topk", "index_topk_pattern")

    def build(kind: str) -> Layer:
        feed, indexed = kind.split("+")
        caches: tuple[Cache, ...] = (latent_cache(m.kv_rank, m.rope, sparse=sparse),)
        own = latent_tensors(t, m) + norms(t.hidden, 2)
        if indexed == "full":
            caches += (index_cache(c.integer("index_head_dim")),)
            own += index
        return Layer("sparse latent" if sparse else "latent", caches, own + (mixture if feed == "moe" else dense))

    first = c.integer("first_k_dense_replace", default=0, low=0)
    step = c.integer("moe_layer_freq", default=1)
    kinds = []
    for i in range(t.layers):
        indexed = "none" if not sparse else ("full" if not full or i >= len(full) or full[i] == "full" else "shared")
        kinds.append(f"{'moe' if i >= first and i % step == 0 else 'dense'}+{indexed}")
    count = draft_count(c)
    draft = (build(f"moe+{'full' if sparse else 'none'}"),) * count
    extra = draft_extra(t, count, norms_each=3, own_embedding=_own_embedding(c)) if count else ()
    return assemble(
        c,
        architecture,
        t,
        interleave(kinds, build),
        vision=vision,
        draft=draft,
        draft_extra=extra,
        moe=moe,
        ffn=ffn,
        rope=(RopeTable(t.max_position, m.rope),),
    )


def _corrected(c: Config) -> bool:
    """Return whether the router has a score-correction bias: DeepSeek-V3's method, the default of its later kin."""
    return c.text("topk_method", default="greedy" if c.text("model_type").startswith("mistral") else "noaux_tc") == "noaux_tc"


def _own_embedding(c: Config) -> bool:
    return c.text("model_type") not in ("glm_moe_dsa",)


def _indexer(c: Config, t: Trunk, m: Latent) -> Tensors:
    return indexer(t.hidden, m.q_rank, c.integer("index_n_heads"), c.integer("index_head_dim"))


def read_longcat(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return the shape of LongCat-Flash: two latent attentions and two MLPs a layer, beside experts of which some are no-ops."""
    count = c.integer("num_layers", "num_hidden_layers", default=28)
    t = trunk(c, layers=count, outer=outer)
    m = latent(c)
    c.ignore("head_dim")
    ffn = c.integer("ffn_hidden_size", "intermediate_size", default=12288)
    inner = c.integer("expert_ffn_hidden_size", "moe_intermediate_size", default=2048)
    routed = c.integer("n_routed_experts")
    idle = c.integer("zero_expert_num", default=256, low=0)
    mixture = experts(t.hidden, inner, routed, correction=True)
    router = [tensor for tensor in mixture if not tensor.experts]
    wider = tuple(msgspec.structs.replace(tensor, rows=routed + idle) for tensor in router)
    half = latent_tensors(t, m) + norms(t.hidden, 2) + mlp(t.hidden, ffn)
    own = half + half + wider + tuple(tensor for tensor in mixture if tensor.experts)
    cache = latent_cache(m.kv_rank, m.rope)
    layer = Layer("latent x2", (cache, cache), own)
    per_token = c.integer("moe_topk", "num_experts_per_tok")
    assumed = (
        ()
        if c.has("ffn_hidden_size")
        else ("layers, MLP and expert widths are the published LongCat-Flash's; the config does not state them",)
    )
    c.ignore("zero_expert_type")
    return assemble(c, architecture, t, (layer,) * t.layers, moe=(routed, per_token, inner, 0), ffn=ffn, vision=vision, assumed=assumed)
