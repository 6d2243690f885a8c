"""State-space hybrids: Granite 4 H, Nemotron-H and Nemotron 3, Falcon-H1 (Mamba2), Jamba (Mamba1), LFM2 (short convolutions).

Sources: the families' config.json and parameter counts (data/models); arXiv 2405.21060, 2403.19887.
"""

from __future__ import annotations

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import (
    Tensors,
    attention,
    experts,
    full_cache,
    mamba1,
    mamba2,
    mamba2_state,
    mlp,
    norms,
    short_conv,
)
from tonnage.facts.config import SMALLEST, Config
from tonnage.facts.families.common import Trunk, assemble, draft_count, interleave, layer_kinds, trunk
from tonnage.facts.families.plain import draft_extra
from tonnage.facts.shape import Cache, Layer, ModelShape, StateCache
from tonnage.facts.tensors import Tensor


def read_granite(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Granite 4: Mamba2 with a few attention layers (H models), or attention alone; a shared MLP, and experts in some."""
    t = trunk(c, outer=outer)
    kinds = layer_kinds(c, t.layers, {"mamba": "mamba2", "attention": "full", "full_attention": "full"}) or ("full",) * t.layers
    hybrid = "mamba2" in kinds
    heads, width = c.integer("mamba_n_heads", default=0, low=0), c.integer("mamba_d_head", default=0, low=0)
    groups, states, kernel = (
        c.integer("mamba_n_groups", default=1),
        c.integer("mamba_d_state", default=0, low=0),
        c.integer("mamba_d_conv", default=4),
    )
    expand = c.integer("mamba_expand", default=2)
    width = width or expand * t.hidden // max(1, heads)
    if hybrid and not (heads and states):
        raise InputError("fields 'mamba_n_heads' and 'mamba_d_state' are missing for its mamba layers", where=c.where)
    shared = c.integer("shared_intermediate_size", "intermediate_size")
    count = c.integer("num_local_experts", default=0, low=0)
    inner = c.integer("intermediate_size", default=shared)
    feed = mlp(t.hidden, shared, module="shared_mlp")
    if count:
        feed += experts(t.hidden, inner, count, module="block_sparse_moe", gate="router")
    bias = c.flag("mamba_proj_bias")
    conv_bias = c.flag("mamba_conv_bias", default=True)
    mixers: dict[str, Tensors] = {
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qkv_bias=c.flag("attention_bias"), o_bias=c.flag("attention_bias"))
    }
    caches: dict[str, Cache] = {"full": full_cache(t.kv_heads, t.head_dim)}
    if hybrid:
        mixers["mamba2"] = mamba2(t.hidden, heads, width, groups, states, kernel, bias=bias, conv_bias=conv_bias)
        caches["mamba2"] = mamba2_state(
            heads,
            width,
            groups,
            states,
            kernel,
            c.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
            c.integer("mamba_chunk_size", default=256),
        )

    def build(kind: str) -> Layer:
        return Layer(kind, (caches[kind],), mixers[kind] + norms(t.hidden, 2) + feed)

    moe = (count, c.integer("num_experts_per_tok", default=0, low=0), inner, shared) if count else (0, 0, 0, 0)
    c.ignore("mamba_chunk_size", "num_experts_per_tok", "intermediate_size")
    rope = () if hybrid and c.text("position_embedding_type", default="nope") == "nope" else None
    return assemble(c, architecture, t, interleave(kinds, build), vision=vision, moe=moe, ffn=shared, rope=rope)


_NEMOTRON = {"M": "mamba2", "*": "full", "-": "mlp", "E": "moe", "mamba": "mamba2", "attention": "full", "mlp": "mlp", "moe": "moe"}


def read_nemotron(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Nemotron-H and Nemotron 3: every layer is one of Mamba2, attention, MLP or experts (some in a latent space)."""
    kinds = _nemotron_kinds(c, "layers_block_type", "hybrid_override_pattern")
    if not kinds:
        raise InputError("field 'hybrid_override_pattern' is missing", where=c.where)
    stated = c.integer("num_hidden_layers", default=len(kinds))
    if stated != len(kinds):
        raise InputError(f"hybrid_override_pattern has {len(kinds)} layers, num_hidden_layers is {stated}", where=c.where)
    t = trunk(c, layers=len(kinds), outer=outer)
    if not c.has("head_dim", "attention_head_dim"):
        t = Trunk(t.hidden, t.layers, t.heads, t.kv_heads, 128, t.vocab, t.max_position, t.tied, t.dtype)
    heads, width = c.integer("mamba_num_heads"), c.integer("mamba_head_dim")
    groups, states, kernel = (
        c.integer("n_groups", "mamba_n_groups"),
        c.integer("ssm_state_size", "mamba_state_dim"),
        c.integer("conv_kernel", default=4),
    )
    moe, mixture = _nemotron_experts(c, t)
    ffn = c.integer("intermediate_size", default=0, low=0)
    own: dict[str, Tensors] = {
        "mamba2": mamba2(
            t.hidden, heads, width, groups, states, kernel, bias=c.flag("use_bias") or c.flag("mamba_proj_bias"), module="mixer"
        ),
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qkv_bias=c.flag("attention_bias"), module="mixer"),
        "mlp": mlp(t.hidden, ffn, gated=False, module="mixer", bias=c.flag("mlp_bias")) if ffn else (),
        "moe": mixture,
    }
    caches: dict[str, tuple[Cache, ...]] = {
        "mamba2": (
            mamba2_state(
                heads,
                width,
                groups,
                states,
                kernel,
                c.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32"),
                c.integer("chunk_size", "mamba_chunk_size", default=128),
            ),
        ),
        "full": (full_cache(t.kv_heads, t.head_dim),),
    }

    def build(kind: str) -> Layer:
        return Layer(kind, caches.get(kind, ()), own[kind] + norms(t.hidden, 1))

    count = draft_count(c)
    pattern = _nemotron_kinds(c, "mtp_layers_block_type", "mtp_hybrid_override_pattern") if count else ()
    draft = tuple(build(kind) for kind in pattern) * count
    extra = draft_extra(t, count, norms_each=3) if pattern else ()
    c.ignore("expand", "chunk_size", "mamba_hidden_act", "use_conv_bias", "sliding_window", "mamba_expand", "mamba_chunk_size")
    return assemble(c, architecture, t, interleave(kinds, build), vision=vision, draft=draft, draft_extra=extra, moe=moe, ffn=ffn, rope=())


def _nemotron_kinds(c: Config, listed: str, pattern: str) -> tuple[str, ...]:
    words = c.texts(listed) or tuple(c.text(pattern).replace("|", ""))
    for word in words:
        if word not in _NEMOTRON:
            raise UnknownError(
                f"{listed if c.has(listed) else pattern} holds {word!r}, a kind of layer we do not know",
                where=c.where,
                hint="known are M, *, -, E",
            )
    return tuple(_NEMOTRON[word] for word in words)


def _nemotron_experts(c: Config, t: Trunk) -> tuple[tuple[int, int, int, int], Tensors]:
    count = c.integer("n_routed_experts", default=0, low=0)
    if not count:
        return (0, 0, 0, 0), ()
    inner, per_token = c.integer("moe_intermediate_size"), c.integer("num_experts_per_tok")
    shared = c.integer("moe_shared_expert_intermediate_size", default=0, low=0) * c.integer("n_shared_experts", default=1, low=0)
    latent_size = c.integer("moe_latent_size", default=0, low=0)
    routed = experts(latent_size or t.hidden, inner, count, gated=False, correction=True, module="mixer")
    tensors = tuple(
        tensor if tensor.cls != "router" or tensor.cols == 1 else Tensor(tensor.name, count, t.hidden, "replicated", "router", linear=False)
        for tensor in routed
    )
    if latent_size:
        tensors += (
            Tensor("mixer.fc1_latent_proj", latent_size, t.hidden, "replicated", "mlp"),
            Tensor("mixer.fc2_latent_proj", t.hidden, latent_size, "replicated", "mlp"),
        )
    if shared:
        tensors += mlp(t.hidden, shared, gated=False, module="mixer.shared_experts")
    return (count, per_token, inner, shared), tensors


def read_falcon(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Falcon-H1: attention and Mamba2 side by side in every layer."""
    t = trunk(c, outer=outer)
    heads, groups, states, kernel = (
        c.integer("mamba_n_heads"),
        c.integer("mamba_n_groups", default=1),
        c.integer("mamba_d_state"),
        c.integer("mamba_d_conv", default=4),
    )
    inner = c.integer("mamba_d_ssm", default=0, low=0) or c.integer("mamba_expand", default=2) * t.hidden
    width = c.integer("mamba_d_head", default=max(1, inner // heads))
    ffn = c.integer("intermediate_size")
    own = attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qkv_bias=c.flag("attention_bias"))
    own += mamba2(
        t.hidden, heads, width, groups, states, kernel, norm=c.flag("mamba_rms_norm", default=True), bias=c.flag("mamba_proj_bias")
    )
    own += norms(t.hidden, 2) + mlp(t.hidden, ffn, module="feed_forward")
    cache = mamba2_state(
        heads, width, groups, states, kernel, c.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype"), c.integer("mamba_chunk_size", default=256)
    )
    layer = Layer("full and mamba2", (full_cache(t.kv_heads, t.head_dim), cache), own)
    c.ignore(
        "mamba_expand", "mamba_chunk_size", "mamba_conv_bias", "mamba_norm_before_gate", "mamba_use_mlp", "mamba_d_head", "num_experts"
    )
    return assemble(c, architecture, t, (layer,) * t.layers, vision=vision, ffn=ffn)


def read_jamba(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return Jamba: Mamba1 with one attention layer in a period, experts in every second layer.

    A tied head is loaded a second time: vLLM's Jamba does not tie.
    """
    t = trunk(c, outer=outer)
    inner = c.integer("mamba_expand", default=2) * t.hidden
    states, kernel = c.integer("mamba_d_state"), c.integer("mamba_d_conv", default=4)
    rank = c.integer("mamba_dt_rank", default=-(-t.hidden // 16))
    count, per_token, ffn = c.integer("num_experts", default=1), c.integer("num_experts_per_tok", default=1), c.integer("intermediate_size")
    period, offset = c.integer("attn_layer_period"), c.integer("attn_layer_offset", low=0)
    expert_period, expert_offset = c.integer("expert_layer_period", default=1), c.integer("expert_layer_offset", default=0, low=0)
    mixers: dict[str, Tensors] = {
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim),
        "mamba1": mamba1(t.hidden, inner, states, kernel, rank),
    }
    caches: dict[str, Cache] = {
        "full": full_cache(t.kv_heads, t.head_dim),
        "mamba1": StateCache("mamba1", kernel - 1, inner, 1, inner, states),
    }
    feeds = {"dense": mlp(t.hidden, ffn, module="feed_forward"), "moe": experts(t.hidden, ffn, count, module="feed_forward", gate="router")}

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), mixers[mixer] + norms(t.hidden, 2) + feeds[feed])

    kinds = [
        f"{'full' if i % period == offset else 'mamba1'}+{'moe' if count > 1 and i % expert_period == expert_offset else 'dense'}"
        for i in range(t.layers)
    ]
    c.ignore("mamba_conv_bias", "mamba_proj_bias", "mamba_inner_layernorms")
    moe = (count, per_token, ffn, 0) if count > 1 else (0, 0, 0, 0)
    copied = (Tensor("lm_head", t.vocab, t.hidden, "vocab", "lm_head", stored=False),) if t.tied else ()
    final = (*norms(t.hidden, 1), *copied)
    return assemble(c, architecture, t, interleave(kinds, build), final=final, vision=vision, moe=moe, ffn=ffn, rope=())


def read_lfm2(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return LFM2: gated short convolutions with some attention layers; experts in the MoE models."""
    t = trunk(c, tied=True, outer=outer)
    full = set(c.integers("full_attn_idxs"))
    kinds = layer_kinds(c, t.layers, {"conv": "short_conv", "full_attention": "full"}) or tuple(
        "full" if i in full else "short_conv" for i in range(t.layers)
    )
    kernel, ffn = c.integer("conv_L_cache"), _lfm2_width(c)
    count, inner, per_token = (
        c.integer("num_experts", default=0, low=0),
        c.integer("moe_intermediate_size", default=0, low=0),
        c.integer("num_experts_per_tok", default=0, low=0),
    )
    first = c.integer("num_dense_layers", default=0, low=0)
    mixers: dict[str, Tensors] = {
        "full": attention(t.hidden, t.heads, t.kv_heads, t.head_dim, qk_norm=t.head_dim),
        "short_conv": short_conv(t.hidden, kernel),
    }
    caches: dict[str, Cache] = {"full": full_cache(t.kv_heads, t.head_dim), "short_conv": StateCache("short_conv", kernel - 1, t.hidden)}
    feeds = {"dense": mlp(t.hidden, ffn, module="feed_forward")}
    if count:
        feeds["moe"] = experts(t.hidden, inner, count, module="feed_forward", correction=c.flag("use_expert_bias"))

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        return Layer(mixer, (caches[mixer],), mixers[mixer] + norms(t.hidden, 2) + feeds[feed])

    names = [f"{kind}+{'moe' if count and i >= first else 'dense'}" for i, kind in enumerate(kinds)]
    c.ignore("full_attn_idxs", "conv_bias", "conv_dim", "conv_dim_out", "conv_use_xavier_init")
    moe = (count, per_token, inner, 0) if count else (0, 0, 0, 0)
    return assemble(c, architecture, t, interleave(names, build), vision=vision, moe=moe, ffn=ffn)


def _lfm2_width(c: Config) -> int:
    """Return the MLP width: LFM2 may state a width that is to be scaled by 2/3 and rounded up to a multiple."""
    width = c.integer("block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", default=False):
        width = int(c.number("block_ffn_dim_multiplier", default=1.0, low=SMALLEST) * int(2 * width / 3))
        multiple = c.integer("block_multiple_of", default=256)
        width = -(-width // multiple) * multiple
    return width
