"""Decoders whose layers differ among themselves: Llama 4, Nemotron NAS, Step 3.5, MiMo V2, MiniMax, Laguna, Ling, and encoders.

Sources: the families' config.json and parameter counts (data/models), and their modelling code.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import Tensors, attention, experts, full_cache, index_cache, latent_cache, mlp, norms, window_cache
from tonnage.facts.config import Config
from tonnage.facts.families.common import assemble, interleave, layer_kinds, pattern_kinds, trunk, vector
from tonnage.facts.families.latent import latent, latent_tensors
from tonnage.facts.families.plain import draft_extra
from tonnage.facts.shape import Cache, IndexCache, KVCache, Layer, ModelShape, StateCache
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
        kv_heads = heads // mixer.integer("n_heads_in_group")
        tensors += attention(hidden, heads, kv_heads, head_dim) + norms(hidden, 1)
        caches = (full_cache(kv_heads, head_dim),)
    if not feed.flag("no_op"):
        width = int(2 * feed.number("ffn_mult", default=0.0) * hidden / 3)
        tensors += mlp(hidden, -(-width // 256) * 256) + norms(hidden, 1)
    return Layer("full" if caches else "no attention", caches, tensors)


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
    extra_layers = c.integer("num_nextn_predict_layers", default=0, low=0)
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
    seen = own + (vector("cross_attn.q_norm", t.head_dim, count=2), vector("cross_attn.gates", 1, count=2))
    cache = full_cache(t.kv_heads, t.head_dim)
    layers = [Layer("cross", (cache,), seen) if i in cross else Layer("full", (cache,), own) for i in range(t.layers)]
    extra = (Tensor("model.image_tokens", 8, t.hidden, "replicated", "embedding", linear=False),)
    assumed = ("image tokens in cross-attention layers are counted as text",)
    return assemble(c, architecture, t, layers, vision=vision, embedding=extra, ffn=ffn, assumed=assumed)


def read_laguna(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Laguna: full and sliding layers with heads of their own, gated by head; sigmoid-routed experts with one shared."""
    t = trunk(c, outer=outer)
    listed = layer_kinds(c, t.layers, {"sliding_attention": "sliding", "full_attention": "full"})
    kinds = listed or tuple("full" if i % 4 == 0 else "sliding" for i in range(t.layers))
    own_heads = c.integers("num_attention_heads_per_layer") or tuple(t.heads if kind == "full" else t.heads * 4 // 3 for kind in kinds)
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
    drafts = c.integer("num_nextn_predict_layers", default=1, low=0)
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
    from tonnage.facts.families.deepseek_v4 import hyper_connections
    from tonnage.facts.families.hybrid import kimi_delta

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
