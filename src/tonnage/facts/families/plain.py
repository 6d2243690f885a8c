"""Decoders with one kind of token mixer, attention, full or windowed; dense or with experts.

A family is a row of `TRAITS`: what its layers have beyond a Llama's. Sources: the published config.json and parameter
counts of each family (data/models), and the released modelling code.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import Tensors, full_cache, window_cache
from tonnage.facts.config import Config
from tonnage.facts.families.common import (
    Trunk,
    assemble,
    attention,
    draft_count,
    experts,
    interleave,
    layer_kinds,
    mlp,
    norms,
    pattern_kinds,
    rope_table,
    same_in_all,
    trunk,
    vector,
)
from tonnage.facts.shape import Layer, ModelShape, RopeTable
from tonnage.facts.tensors import Tensor


class Traits(msgspec.Struct, frozen=True):
    """What a family's layer has beyond a Llama's: norms per layer, biases, head norms, how windows alternate."""

    norms: int = 2
    norm_bias: bool = False
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    mlp_bias: bool | None = None
    head_bias: bool = False
    gated: bool = True
    qk_norm: str = ""
    tied: bool = False
    window: str = "none"
    every: int = 0
    odd_first: bool = False
    moe: str = ""
    correction: bool = False
    shared_gate: bool = False
    moe_module: str = "mlp"
    draft: str = ""
    gate: str = "gate"


_KINDS = {"full_attention": "full", "sliding_attention": "sliding", "attention": "full", "global": "full", "local": "sliding"}

TRAITS: dict[str, Traits] = {
    "LlamaForCausalLM": Traits(window="config"),
    "ArceeForCausalLM": Traits(gated=False),
    "AquilaForCausalLM": Traits(),
    "InternLM2ForCausalLM": Traits(),
    "InternLM3ForCausalLM": Traits(),
    "InternLMForCausalLM": Traits(),
    "MistralForCausalLM": Traits(window="all"),
    "Ministral3ForCausalLM": Traits(window="all"),
    "GraniteForCausalLM": Traits(),
    "SmolLM3ForCausalLM": Traits(tied=True),
    "Qwen2ForCausalLM": Traits(qkv_bias=True, window="qwen2"),
    "QwQForCausalLM": Traits(qkv_bias=True, window="qwen2"),
    "Qwen3ForCausalLM": Traits(qk_norm="head", window="qwen2"),
    "SeedOssForCausalLM": Traits(qkv_bias=True, o_bias=False),
    "MiMoForCausalLM": Traits(qkv_bias=True, o_bias=False, window="qwen2", draft="mimo"),
    "HunYuanDenseV1ForCausalLM": Traits(qk_norm="head", tied=True),
    "Phi3ForCausalLM": Traits(window="all"),
    "Starcoder2ForCausalLM": Traits(norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, tied=True, window="all"),
    "CohereForCausalLM": Traits(norms=1, tied=True, qk_norm="config-all"),
    "Cohere2ForCausalLM": Traits(norms=1, tied=True, window="pattern", every=4),
    "Olmo2ForCausalLM": Traits(qk_norm="all"),
    "Olmo3ForCausalLM": Traits(qk_norm="all", window="pattern", every=4),
    "Exaone4ForCausalLM": Traits(qk_norm="head", window="pattern", every=4, tied=False),
    "Glm4ForCausalLM": Traits(norms=4, o_bias=False),
    "GlmForCausalLM": Traits(o_bias=False),
    "Gemma2ForCausalLM": Traits(norms=4, tied=True, window="pattern", every=2),
    "NemotronForCausalLM": Traits(norm_bias=True, gated=False),
    "StableLmForCausalLM": Traits(norm_bias=True, o_bias=False),
    "MixtralForCausalLM": Traits(moe="num_local_experts", moe_module="block_sparse_moe", window="all"),
    "PhiMoEForCausalLM": Traits(
        moe="num_local_experts", moe_module="block_sparse_moe", norm_bias=True, head_bias=True, o_bias=True, window="all"
    ),
    "Qwen2MoeForCausalLM": Traits(moe="num_experts", qkv_bias=True, shared_gate=True, window="qwen2"),
    "Qwen3MoeForCausalLM": Traits(moe="num_experts", qk_norm="head", window="qwen2"),
    "OlmoeForCausalLM": Traits(moe="num_experts", qk_norm="all"),
    "GraniteMoeForCausalLM": Traits(moe="num_local_experts", moe_module="block_sparse_moe"),
    "MiniMaxM2ForCausalLM": Traits(moe="num_local_experts", qk_norm="all", correction=True, moe_module="block_sparse_moe"),
    "Ernie4_5_MoeForCausalLM": Traits(moe="moe_num_experts", correction=True, tied=True, draft="ernie"),
    "Ernie4_5ForCausalLM": Traits(tied=True),
    "Glm4MoeForCausalLM": Traits(moe="n_routed_experts", qk_norm="config-head", correction=True, o_bias=False, draft="deepseek"),
    "HunYuanMoEV1ForCausalLM": Traits(moe="num_experts", qk_norm="config-head", tied=True),
    "HYV3ForCausalLM": Traits(moe="num_experts", qk_norm="head", correction=True, draft="shared"),
    "GptOssForCausalLM": Traits(moe="num_local_experts", gate="router", window="pattern", every=2),
}


def read(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return the shape of a family in `TRAITS`.

    Raises InputError or UnknownError: see `Config`.
    """
    traits = TRAITS[architecture]
    t = trunk(c, tied=traits.tied, outer=outer)
    kinds = _window_kinds(c, t, traits)
    sparse = _expert_layers(c, t, traits)
    window = c.integer("sliding_window", default=0, low=0) + (architecture == "Cohere2ForCausalLM")
    moe, ffn, moe_tensors = _experts(c, t, traits) if traits.moe else ((0, 0, 0, 0), _width(c, t), ())
    own = _attention(c, t, traits)
    dense = mlp(t.hidden, ffn, gated=traits.gated, bias=_bias(c, traits.mlp_bias, "mlp_bias", "use_bias")) if not all(sparse) else ()

    def build(kind: str) -> Layer:
        mixer, feed = kind.split("+")
        cache = full_cache(t.kv_heads, t.head_dim) if mixer == "full" else window_cache(t.kv_heads, t.head_dim, window)
        return Layer(mixer, (cache,), (*own, *(moe_tensors if feed == "moe" else dense)))

    names = [f"{kind}+{'moe' if is_sparse else 'dense'}" for kind, is_sparse in zip(kinds, sparse, strict=True)]
    draft, extra = _draft(c, t, traits, build(f"full+{'moe' if sparse and sparse[-1] else 'dense'}"))
    final = (vector("model.norm", t.hidden, count=2 if traits.norm_bias else 1),)
    gpt_oss = traits.gate == "router"
    rope: tuple[RopeTable, ...] | None = (msgspec.structs.replace(rope_table(c, t.max_position, t.head_dim), bits=32),) if gpt_oss else None
    if architecture.startswith("HunYuan"):
        rope = ()
    shape = assemble(
        c,
        architecture,
        t,
        interleave(names, build),
        final=final,
        head_bias=traits.head_bias,
        vision=vision,
        draft=draft,
        draft_extra=extra,
        moe=moe,
        ffn=ffn,
        rope=rope,
    )
    return msgspec.structs.replace(shape, head_everywhere=True) if gpt_oss else shape


def _bias(c: Config, fixed: bool | None, *names: str) -> bool:
    return fixed if fixed is not None and not c.has(*names) else c.flag(*names, default=bool(fixed))


def _attention(c: Config, t: Trunk, traits: Traits) -> Tensors:
    asked = traits.qk_norm
    if asked.startswith("config"):
        asked = asked.removeprefix("config-") if c.flag("use_qk_norm") else ""
    c.ignore("use_qk_norm", "qk_norm_type")
    q_norm = {"": 0, "head": t.head_dim, "all": t.heads * t.head_dim}[asked]
    k_norm = t.kv_heads * t.head_dim if asked == "all" else 0
    qkv_bias = _bias(c, traits.qkv_bias, "attention_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias")
    o_bias = traits.o_bias if traits.o_bias is not None else (c.flag("attention_bias", "bias") and traits.qkv_bias is None)
    mixer = attention(
        t.hidden,
        t.heads,
        t.kv_heads,
        t.head_dim,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        qk_norm=q_norm,
        k_norm=k_norm,
        sinks=traits.gate == "router",
    )
    return (*mixer, *norms(t.hidden, traits.norms * (2 if traits.norm_bias else 1)))


def _width(c: Config, t: Trunk) -> int:
    return c.integer("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * t.hidden if c.has("n_embd") else None)


def _window_kinds(c: Config, t: Trunk, traits: Traits) -> tuple[str, ...]:
    listed = layer_kinds(c, t.layers, _KINDS)
    window = c.integer("sliding_window", default=0, low=0)
    c.ignore("sliding_window_pattern", "max_window_layers", "layer_types")
    if traits.window == "qwen2" and not c.flag("use_sliding_window"):
        return ("full",) * t.layers
    if not window or traits.window == "none":
        if window and traits.window == "none" and listed is None:
            raise UnknownError(
                "field 'sliding_window' is set, and this family has none that we know", where=c.where, hint="--assume full-attention"
            )
        return ("full",) * t.layers
    if listed is not None:
        return listed
    if traits.window in ("all", "config"):
        return ("sliding",) * t.layers
    if traits.window == "qwen2":
        first = c.integer("max_window_layers", default=t.layers, low=0)
        return tuple("full" if index < first else "sliding" for index in range(t.layers))
    pattern = c.raw("sliding_window_pattern")
    every = len(pattern) if isinstance(pattern, str) else c.integer("sliding_window_pattern", default=traits.every)
    return pattern_kinds(t.layers, every, odd="full", common="sliding")


def _expert_layers(c: Config, t: Trunk, traits: Traits) -> tuple[bool, ...]:
    if not traits.moe:
        return (False,) * t.layers
    if not c.integer(traits.moe, "num_experts", "num_local_experts", default=0, low=0):
        return (False,) * t.layers
    first = c.integer("first_k_dense_replace", "moe_layer_start_index", default=0, low=0)
    last = c.integer("moe_layer_end_index", default=t.layers - 1, low=0)
    step = c.integer("decoder_sparse_step", "moe_layer_interval", "moe_layer_freq", default=1, low=0)
    plain = set(c.integers("mlp_only_layers"))
    return tuple(first <= i <= last and step > 0 and (i + 1) % step == 0 and i not in plain for i in range(t.layers))


def _experts(c: Config, t: Trunk, traits: Traits) -> tuple[tuple[int, int, int, int], int, Tensors]:
    count = c.integer(traits.moe, "num_experts", "num_local_experts")
    width = c.integer("intermediate_size", default=0, low=0)
    inner = same_in_all(c, "moe_intermediate_size", default=width) or width
    if not inner:
        raise InputError("field 'moe_intermediate_size' is missing", where=c.where)
    per_token = same_in_all(c, "num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", "moe_top_k", "top_k_experts")
    shared = c.integer("shared_expert_intermediate_size", default=0, low=0)
    shared = shared or inner * same_in_all(
        c, "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", default=0
    )
    shared = shared or c.integer("shared_intermediate_size", default=0, low=0)
    c.ignore("experts_per_token", "num_experts", "num_local_experts", "use_expert_bias", "moe_intermediate_size", "num_mtp_modules")
    router = traits.gate == "router"
    tensors = experts(
        t.hidden,
        inner,
        count,
        correction=traits.correction,
        bias=router,
        router_bias=router,
        module=traits.moe_module,
        gate=traits.gate,
        router_bits=32 if traits.correction and traits.moe == "num_local_experts" else 0,
    )
    if shared:
        tensors += mlp(t.hidden, shared, module=f"{traits.moe_module}.shared_experts")
        if traits.shared_gate:
            tensors += (Tensor(f"{traits.moe_module}.shared_expert_gate", 1, t.hidden, "replicated", "router", linear=False),)
    return (count, per_token, inner, shared), width or inner, tensors


def _draft(c: Config, t: Trunk, traits: Traits, layer: Layer) -> tuple[tuple[Layer, ...], Tensors]:
    """Return the multi-token-prediction layers of a checkpoint: a decoder layer, a projection of two vectors to one, norms."""
    count = draft_count(c)
    c.ignore("use_mtp", "num_mtp_modules")
    if not count or not traits.draft:
        return (), ()
    own = traits.draft == "deepseek" and not t.tied and not c.flag("mtp_shares_embedding")
    return (layer,) * count, draft_extra(t, count, norms_each=3, own_embedding=own)


def draft_extra(t: Trunk, count: int, *, norms_each: int, own_embedding: bool = False) -> Tensors:
    """Return what an MTP layer has beside a decoder layer: eh_proj, its norms, and in some checkpoints a second embedding and head."""
    extra: list[Tensor] = [
        Tensor("mtp.eh_proj", t.hidden, 2 * t.hidden, "replicated", "draft", count=count, linear=False),
        vector("mtp.norms", t.hidden, "draft", count=norms_each * count),
    ]
    if own_embedding:
        extra.append(Tensor("mtp.embed_tokens", t.vocab, t.hidden, "vocab", "draft", count=count, linear=False))
        extra.append(Tensor("mtp.shared_head.head", t.vocab, t.hidden, "vocab", "draft", count=count, linear=False))
    return tuple(extra)
