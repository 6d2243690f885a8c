"""Delta-rule hybrids: Gated DeltaNet (Qwen3-Next, Qwen3.5 and later) and Kimi Delta Attention (Kimi-Linear, K3, Ling 3, GLM-5.3-Flash).

Most layers keep a state of fixed size; every few layers one attends in full, or by a latent. Sources: the families'
config.json and parameter counts (data/models); arXiv 2412.06464, 2510.26692.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.facts.blocks import (
    Tensors,
    attention,
    experts,
    full_cache,
    gated_delta_net,
    gated_delta_state,
    index_cache,
    latent_cache,
    mlp,
    norms,
)
from tonnage.facts.config import Config
from tonnage.facts.families.common import Trunk, assemble, draft_count, interleave, layer_kinds, pattern_kinds, rope_table, trunk, vector
from tonnage.facts.families.deepseek_v4 import hyper_connections
from tonnage.facts.families.latent import latent, latent_tensors
from tonnage.facts.families.plain import draft_extra
from tonnage.facts.shape import Cache, Layer, ModelShape, StateCache
from tonnage.facts.tensors import Tensor


def read_qwen_next(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Qwen3-Next, Qwen3.5, Qwen3.6, Qwen3.8: Gated DeltaNet with one gated full-attention layer in four."""
    t = trunk(c, outer=outer)
    key_heads, value_heads = c.integer("linear_num_key_heads"), c.integer("linear_num_value_heads")
    key_dim, value_dim = c.integer("linear_key_head_dim"), c.integer("linear_value_head_dim")
    kernel = c.integer("linear_conv_kernel_dim")
    state = gated_delta_state(key_heads, value_heads, key_dim, value_dim, kernel, c.text("mamba_ssm_dtype"))
    every = c.integer("full_attention_interval", default=4)
    kinds = layer_kinds(c, t.layers, {"linear_attention": "gdn", "full_attention": "full"}) or pattern_kinds(
        t.layers, every, odd="full", common="gdn"
    )
    moe, feed, ffn = _qwen_feed(c, t)
    gated = c.flag("attn_output_gate", default=True)
    mixers = {
        "gdn": gated_delta_net(t.hidden, key_heads, value_heads, key_dim, value_dim, kernel),
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim, gate=gated, qkv_bias=c.flag("attention_bias")),
    }
    caches: dict[str, Cache] = {"gdn": state, "full": full_cache(t.kv_heads, t.head_dim)}

    def build(kind: str) -> Layer:
        return Layer(kind, (caches[kind],), mixers[kind] + norms(t.hidden, 2) + feed)

    count = draft_count(c, "mtp_num_hidden_layers", "num_nextn_predict_layers")
    draft = (build("full"),) * count
    extra = draft_extra(t, 1, norms_each=3) if count else ()
    c.ignore(
        "mlp_only_layers", "decoder_sparse_step", "intermediate_size", "mtp_use_dedicated_embeddings", "use_sliding_window", "num_experts"
    )
    rope = rope_table(c, t.max_position, t.head_dim, share=0.25)
    if vision and not rope.sections:
        rope = msgspec.structs.replace(rope, sections="interleaved")
    return assemble(
        c, architecture, t, interleave(kinds, build), vision=vision, draft=draft, draft_extra=extra, moe=moe, ffn=ffn, rope=(rope,)
    )


def _qwen_feed(c: Config, t: Trunk) -> tuple[tuple[int, int, int, int], Tensors, int]:
    count = c.integer("num_experts", default=0, low=0)
    if not count:
        ffn = c.integer("intermediate_size")
        return (0, 0, 0, 0), mlp(t.hidden, ffn), ffn
    inner, per_token = c.integer("moe_intermediate_size"), c.integer("num_experts_per_tok")
    shared = c.integer("shared_expert_intermediate_size", default=0, low=0)
    tensors = experts(t.hidden, inner, count)
    if shared:
        tensors += mlp(t.hidden, shared, module="mlp.shared_expert")
        tensors += (Tensor("mlp.shared_expert_gate", 1, t.hidden, "replicated", "router", linear=False),)
    return (count, per_token, inner, shared), tensors, inner


def read_kimi_linear(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Kimi-Linear and Kimi-K3: Kimi Delta Attention with one latent-attention layer in four, and experts."""
    t = trunk(c, outer=outer)
    m = latent(c)
    linear = c.child("linear_attn_config")
    if linear is None:
        raise InputError("field 'linear_attn_config' is missing", where=c.where)
    heads, dim, kernel = linear.integer("num_heads"), linear.integer("head_dim"), linear.integer("short_conv_kernel_size")
    full = {index - 1 for index in linear.integers("full_attn_layers")}
    rank_gate = linear.flag("use_full_rank_gate")
    moe, mixture = _kimi_experts(c, t)
    ffn, first = c.integer("intermediate_size"), c.integer("first_k_dense_replace", default=0, low=0)
    mixers = {
        "latent": latent_tensors(t, m, gate=c.flag("mla_use_output_gate")),
        "kda": kimi_delta(t.hidden, heads, dim, kernel, full_rank=rank_gate),
    }
    caches: dict[str, Cache] = {
        "latent": latent_cache(m.kv_rank, m.rope),
        "kda": StateCache("flashkda" if rank_gate else "kda", kernel - 1, 3 * heads * dim, heads, dim, dim, "float32"),
    }
    feeds = {"dense": mlp(t.hidden, ffn), "moe": mixture}

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), mixers[mixer] + norms(t.hidden, 2) + feeds[feed])

    kinds = [f"{'latent' if i in full else 'kda'}+{'moe' if i >= first else 'dense'}" for i in range(t.layers)]
    c.ignore(
        "head_dim",
        "mla_use_nope",
        "mla_use_output_gate",
        "moe_layer_freq",
        "num_nextn_predict_layers",
        "routed_expert_hidden_size",
        "latent_moe_use_norm",
    )
    return assemble(c, architecture, t, interleave(kinds, build), vision=vision, moe=moe, ffn=ffn, rope=())


def kimi_delta(hidden: int, heads: int, dim: int, kernel: int, *, full_rank: bool) -> Tensors:
    """Return a Kimi Delta Attention layer (arXiv 2510.26692): projections, convolutions in FP32, decays, an output gate."""
    inner, module = heads * dim, "self_attn"
    out = [
        *(Tensor(f"{module}.{name}_proj", inner, hidden, "column", "state") for name in "qkv"),
        Tensor(f"{module}.conv1d", 3 * inner, kernel, "column", "state", linear=False, bits=32),
        Tensor(f"{module}.b_proj", heads, hidden, "column", "state"),
        Tensor(f"{module}.f_a_proj", dim, hidden, "replicated", "state"),
        Tensor(f"{module}.f_b_proj", inner, dim, "column", "state"),
        vector(f"{module}.dt_bias", inner, "state", "column", bits=32),
        vector(f"{module}.A_log", heads, "state", "column", bits=32),
        vector(f"{module}.o_norm", dim),
        Tensor(f"{module}.o_proj", hidden, inner, "row", "state"),
    ]
    if full_rank:
        out.append(Tensor(f"{module}.g_proj", inner, hidden, "column", "state"))
    else:
        out.append(Tensor(f"{module}.g_a_proj", dim, hidden, "replicated", "state"))
        out.append(Tensor(f"{module}.g_b_proj", inner, dim, "column", "state"))
    return tuple(out)


def _kimi_experts(c: Config, t: Trunk) -> tuple[tuple[int, int, int, int], Tensors]:
    count, inner = c.integer("num_experts"), c.integer("moe_intermediate_size")
    per_token = c.integer("num_experts_per_token", "num_experts_per_tok")
    shared = inner * c.integer("num_shared_experts", default=0, low=0)
    inside = c.integer("routed_expert_hidden_size", default=0, low=0)
    routed = experts(inside or t.hidden, inner, count, correction=True, module="block_sparse_moe")
    tensors = tuple(
        tensor if tensor.cls != "router" or tensor.cols == 1 else Tensor(tensor.name, count, t.hidden, "replicated", "router", linear=False)
        for tensor in routed
    )
    if inside:
        tensors += (
            Tensor("block_sparse_moe.routed_expert_down_proj", inside, t.hidden, "replicated", "mlp", linear=False),
            Tensor("block_sparse_moe.routed_expert_up_proj", t.hidden, inside, "replicated", "mlp", linear=False),
        )
        if c.flag("latent_moe_use_norm"):
            tensors += (vector("block_sparse_moe.routed_expert_norm", inside),)
    if shared:
        tensors += mlp(t.hidden, shared, module="block_sparse_moe.shared_experts")
    return (count, per_token, inner, shared), tensors


def read_bailing(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Ling 3: Kimi Delta Attention at full rank with one gated latent layer in six, experts, one draft layer.

    A layer_group_size of 6 and head-wise gates reproduce the published parameter count to the last one.
    """
    t = trunk(c, outer=outer)
    m = latent(c)
    count, inner = c.integer("num_experts", "num_local_experts", "n_routed_experts"), c.integer("moe_intermediate_size")
    shared = c.integer("moe_shared_expert_intermediate_size", default=inner) * c.integer(
        "num_shared_experts", "n_shared_experts", default=0, low=0
    )
    ffn, first = c.integer("intermediate_size"), c.integer("first_k_dense_replace", default=0, low=0)
    every, kernel, dim = c.integer("layer_group_size", default=6), c.integer("short_conv_kernel_size", default=4), t.head_dim
    inner_width = t.heads * dim
    delta = (
        Tensor("self_attn.qkv_proj", 3 * inner_width, t.hidden, "column", "state"),
        Tensor("self_attn.b_proj", t.heads, t.hidden, "column", "state"),
        Tensor("self_attn.f_proj", inner_width, t.hidden, "column", "state"),
        Tensor("self_attn.g_proj", inner_width, t.hidden, "column", "state"),
        Tensor("self_attn.conv1d", 3 * inner_width, kernel, "column", "state", linear=False, bits=32),
        vector("self_attn.dt_bias", inner_width, "state", "column", bits=32),
        vector("self_attn.A_log", t.heads, "state", "column", bits=32),
        vector("self_attn.o_norm", dim),
        Tensor("self_attn.o_proj", t.hidden, inner_width, "row", "state"),
    )
    mixers = {"latent": (*latent_tensors(t, m), Tensor("self_attn.gate", t.heads, t.hidden, "column", "attention")), "kda": delta}
    caches: dict[str, Cache] = {
        "latent": latent_cache(m.kv_rank, m.rope),
        "kda": StateCache("kda", kernel - 1, 3 * inner_width, t.heads, dim, dim, "float32"),
    }
    mixture = experts(t.hidden, inner, count, correction=True, router_bits=32) + (
        mlp(t.hidden, shared, module="mlp.shared_experts") if shared else ()
    )
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn)}

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), mixers[mixer] + norms(t.hidden, 2) + feeds[feed])

    kinds = pattern_kinds(t.layers, every, odd="latent", common="kda")
    names = [f"{kind}+{'moe' if i >= first else 'dense'}" for i, kind in enumerate(kinds)]
    drafts = draft_count(c, default=1)
    c.ignore("head_dim", "no_kda_lora", "num_local_experts", "moe_layer_freq", "linear_attn_norm", "group_norm_size")
    moe = (count, c.integer("num_experts_per_tok"), inner, shared)
    assumed = (
        () if c.has("layer_group_size") else ("one latent layer in six: it gives the published parameter count; the config does not say",)
    )
    return assemble(
        c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn, assumed=assumed,
        draft=(build("latent+moe"),) * drafts, draft_extra=draft_extra(t, drafts, norms_each=3) if drafts else (),
    )  # fmt: skip


def read_glm5_next(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return GLM-5.3-Flash: Kimi Delta Attention with one sparse latent layer in four, hyper-connections, and experts."""
    t = trunk(c, outer=outer)
    m = latent(c)
    count, inner = c.integer("n_routed_experts"), c.integer("moe_intermediate_size")
    shared = inner * c.integer("n_shared_experts", default=0, low=0)
    ffn, index_dim, index_heads = c.integer("intermediate_size"), c.integer("index_head_dim"), c.integer("index_n_heads")
    listed = layer_kinds(c, t.layers, {"linear_attention": "kda", "full_attention": "latent", "deepseek_sparse_attention": "latent"})
    kinds = listed or pattern_kinds(t.layers, 4, odd="latent", common="kda")
    dim, kernel, streams = 128, c.integer("linear_conv_kernel_dim", default=4), c.integer("hc_mult", default=4)
    index = (
        Tensor("self_attn.indexer.wq_b", index_heads * index_dim, m.q_rank, "replicated", "attention"),
        Tensor("self_attn.indexer.wk", 2 * index_dim + index_heads, t.hidden, "replicated", "attention", linear=False),
        vector("self_attn.indexer.norm", 18 * index_dim, bits=32),
    )
    mixers = {"latent": latent_tensors(t, m) + index, "kda": kimi_delta(t.hidden, t.heads, dim, kernel, full_rank=False)}
    caches: dict[str, tuple[Cache, ...]] = {
        "latent": (latent_cache(m.kv_rank, m.rope, sparse=True), index_cache(index_dim)),
        "kda": (StateCache("flashkda", kernel - 1, 3 * t.heads * dim, t.heads, dim, dim, "float32"),),
    }
    mixture = experts(t.hidden, inner, count, correction=True) + mlp(t.hidden, shared, module="mlp.shared_experts")
    feeds = {"moe": mixture, "dense": mlp(t.hidden, ffn)}
    first = c.integer("first_k_dense_replace", default=3, low=0)

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, caches[mixer], mixers[mixer] + norms(t.hidden, 2) + hyper_connections(t.hidden, streams) + feeds[feed])

    names = [f"{kind}+{'moe' if i >= first else 'dense'}" for i, kind in enumerate(kinds)]
    c.ignore("head_dim", "index_topk", "linear_attn_config")
    moe = (count, c.integer("num_experts_per_tok"), inner, shared)
    assumed = () if listed else ("one latent layer in four, the others linear: the class default; the config does not say",)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn, rope=(), assumed=assumed)
