"""The building blocks that families share: attention, latent attention, recurrent layers, MLPs and experts, as tensors.

Module names are those of the published checkpoints, since quantisation schemes name modules by them. How a tensor is
split over ranks is the engine's choice (vLLM's parallel linear layers).
"""

from __future__ import annotations

from tonnage.facts.shape import IndexCache, KVCache, LatentCache, StateCache
from tonnage.facts.tensors import Class, Tensor, vector

Tensors = tuple[Tensor, ...]


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    v_dim: int = 0,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: int = 0,
    k_norm: int = 0,
    gate: bool = False,
    sinks: bool = False,
    share_kv: bool = False,
    module: str = "self_attn",
    cls: Class = "attention",
) -> Tensors:
    """Return grouped-query attention: q, k, v, o; biases, head norms (`qk_norm` elements each), output gate, sinks.

    `share_kv` is for models that use the keys as values: no checkpoint holds a value projection, the engine makes a copy.

    >>> sum(t.elements for t in attention(4096, 32, 8, 128))  # Llama-3.1-8B
    41943040
    """
    v_dim = v_dim or head_dim
    out = [
        Tensor(f"{module}.q_proj", heads * head_dim * (2 if gate else 1), hidden, "column", cls),
        Tensor(f"{module}.k_proj", kv_heads * head_dim, hidden, "kv", cls, units=kv_heads),
    ]
    out.append(Tensor(f"{module}.v_proj", kv_heads * v_dim, hidden, "kv", cls, units=kv_heads, stored=not share_kv))
    out.append(Tensor(f"{module}.o_proj", hidden, heads * v_dim, "row", cls))
    if qkv_bias:
        out.append(vector(f"{module}.q_bias", heads * head_dim, cls, "column"))
        out.append(Tensor(f"{module}.kv_bias", kv_heads * (head_dim + v_dim), 1, "kv", cls, units=kv_heads, linear=False))
    if o_bias:
        out.append(vector(f"{module}.o_bias", hidden, cls))
    if qk_norm:
        out.append(vector(f"{module}.q_norm", qk_norm))
        out.append(vector(f"{module}.k_norm", k_norm or qk_norm))
    if sinks:
        out.append(vector(f"{module}.sinks", heads, cls, "column"))
    return tuple(out)


def latent_attention(
    hidden: int,
    heads: int,
    *,
    q_rank: int,
    kv_rank: int,
    nope: int,
    rope: int,
    v_dim: int,
    output_gate: bool = False,
    module: str = "self_attn",
    cls: Class = "attention",
) -> Tensors:
    """Return multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): down-projections are replicated, the rest split.

    >>> sum(t.elements for t in latent_attention(7168, 128, q_rank=1536, kv_rank=512, nope=128, rope=64, v_dim=128))
    187107328
    """
    out = []
    if q_rank:
        out.append(Tensor(f"{module}.q_a_proj", q_rank, hidden, "replicated", cls))
        out.append(vector(f"{module}.q_a_layernorm", q_rank))
        out.append(Tensor(f"{module}.q_b_proj", heads * (nope + rope), q_rank, "column", cls))
    else:
        out.append(Tensor(f"{module}.q_proj", heads * (nope + rope), hidden, "column", cls))
    out.append(Tensor(f"{module}.kv_a_proj_with_mqa", kv_rank + rope, hidden, "replicated", cls))
    out.append(vector(f"{module}.kv_a_layernorm", kv_rank))
    out.append(Tensor(f"{module}.kv_b_proj", heads * (nope + v_dim), kv_rank, "column", cls))
    out.append(Tensor(f"{module}.o_proj", hidden, heads * v_dim, "row", cls))
    if output_gate:
        out.append(Tensor(f"{module}.g_proj", heads * v_dim, hidden, "column", cls))
    return tuple(out)


def indexer(hidden: int, q_rank: int, heads: int, dim: int, *, module: str = "self_attn.indexer") -> Tensors:
    """Return the indexer of DeepSeek sparse attention (V3.2): replicated on every rank."""
    return (
        Tensor(f"{module}.wq_b", heads * dim, q_rank, "replicated", "attention"),
        Tensor(f"{module}.wk", dim, hidden, "replicated", "attention"),
        vector(f"{module}.k_norm", dim, count=2),
        Tensor(f"{module}.weights_proj", heads, hidden, "replicated", "attention", linear=False),
    )


def mlp(hidden: int, inter: int, *, gated: bool = True, bias: bool = False, module: str = "mlp", cls: Class = "mlp") -> Tensors:
    """Return a dense feed-forward layer; gated (SwiGLU) has two up-projections.

    >>> sum(t.elements for t in mlp(4096, 14336))
    176160768
    """
    up: list[Tensor] = [Tensor(f"{module}.up_proj", inter, hidden, "column", cls)]
    if gated:
        up.append(Tensor(f"{module}.gate_proj", inter, hidden, "column", cls))
    out = [*up, Tensor(f"{module}.down_proj", hidden, inter, "row", cls)]
    if bias:
        out += [vector(f"{module}.up_bias", inter * len(up), cls, "column"), vector(f"{module}.down_bias", hidden, cls)]
    return tuple(out)


def experts(
    hidden: int,
    inter: int,
    count: int,
    *,
    gated: bool = True,
    bias: bool = False,
    correction: bool = False,
    router_bias: bool = False,
    router_bits: int = 0,
    module: str = "mlp",
    inner: str = "experts",
    gate: str = "gate",
) -> Tensors:
    """Return a mixture of experts: router (replicated), and `count` experts, all of which are loaded.

    `correction` is the FP32 score-correction bias of DeepSeek-style routers.

    >>> sum(t.elements for t in experts(2048, 768, 128))  # Qwen3-30B-A3B, one layer
    604241920
    """
    out = [Tensor(f"{module}.{gate}", count, hidden, "replicated", "router", linear=False, bits=router_bits)]
    if correction:
        out.append(vector(f"{module}.{gate}.e_score_correction_bias", count, "router", bits=32))
    if router_bias:
        out.append(vector(f"{module}.{gate}.bias", count, "router"))
    path = f"{module}.{inner}"
    out.append(Tensor(f"{path}.up_proj", inter, hidden, "column", "experts", experts=count))
    if gated:
        out.append(Tensor(f"{path}.gate_proj", inter, hidden, "column", "experts", experts=count))
    out.append(Tensor(f"{path}.down_proj", hidden, inter, "row", "experts", experts=count))
    if bias:
        ups = 2 if gated else 1
        out.append(Tensor(f"{path}.up_bias", inter * ups, 1, "column", "experts", experts=count, linear=False))
        out.append(Tensor(f"{path}.down_bias", hidden, 1, "replicated", "experts", experts=count, linear=False))
    return tuple(out)


def norms(hidden: int, count: int) -> Tensors:
    """Return the layer norms of one layer: `count` vectors of `hidden` elements, on every rank."""
    return (vector("layernorms", hidden, count=count),)


def gated_delta_net(
    hidden: int, key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, *, module: str = "linear_attn"
) -> Tensors:
    """Return a Gated DeltaNet layer (Qwen3-Next, Qwen3.5): projections, convolution, decays; in_proj_a/b stay unquantised."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    return (
        Tensor(f"{module}.in_proj_qkv", 2 * keys + values, hidden, "column", "state"),
        Tensor(f"{module}.in_proj_z", values, hidden, "column", "state"),
        Tensor(f"{module}.in_proj_ba", 2 * value_heads, hidden, "column", "state", linear=False),
        Tensor(f"{module}.conv1d", 2 * keys + values, kernel, "column", "state", linear=False),
        vector(f"{module}.dt_bias", value_heads, "state", "column"),
        vector(f"{module}.A_log", value_heads, "state", "column", bits=32),
        vector(f"{module}.norm", value_dim, bits=0),
        Tensor(f"{module}.out_proj", hidden, values, "row", "state"),
    )


def gated_delta_state(key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, dtype: str) -> StateCache:
    """Return the state of one Gated DeltaNet layer: kernel-1 columns of q, k, v and one matrix a value head.

    >>> state = gated_delta_state(16, 32, 128, 128, 4, "float32")  # Qwen3.5-4B
    >>> state.conv_elements * 2 + state.state_elements * 4
    2146304
    """
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return StateCache("gdn", kernel - 1, channels, value_heads, key_dim, value_dim, state_dtype=dtype)


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    norm: bool = True,
    module: str = "mamba",
) -> Tensors:
    """Return a Mamba2 layer (arXiv 2405.21060): input projection (gate, x, B, C, dt), convolution, decays, norm, output."""
    inner, bc = heads * head_dim, groups * state
    out = [
        Tensor(f"{module}.in_proj", 2 * inner + heads, hidden, "column", "state"),
        Tensor(f"{module}.in_proj", 2 * bc, hidden, "groups", "state", units=groups),
        Tensor(f"{module}.conv1d", inner, kernel, "column", "state", linear=False),
        Tensor(f"{module}.conv1d", 2 * bc, kernel, "groups", "state", units=groups, linear=False),
        vector(f"{module}.dt_bias", heads, "state", "column"),
        vector(f"{module}.A_log", heads, "state", "column", bits=32),
        vector(f"{module}.D", heads, "state", "column"),
        Tensor(f"{module}.out_proj", hidden, inner, "row", "state"),
    ]
    if norm:
        out.append(vector(f"{module}.norm", inner, "state", "column"))
    if conv_bias:
        out.append(vector(f"{module}.conv1d.bias", inner, "state", "column"))
        out.append(Tensor(f"{module}.conv1d.bias", 2 * bc, 1, "groups", "state", units=groups, linear=False))
    if bias:
        out.append(vector(f"{module}.in_proj.bias", 2 * inner + 2 * bc + heads, "state", "column"))
        out.append(vector(f"{module}.out_proj.bias", hidden, "state"))
    return tuple(out)


def mamba2_state(heads: int, head_dim: int, groups: int, state: int, kernel: int, dtype: str, chunk: int = 256) -> StateCache:
    """Return the state of one Mamba2 layer: kernel-1 columns of x, B, C and one matrix a head.

    >>> cache = mamba2_state(128, 64, 1, 128, 4, "")  # Granite-4.0-h-small, BF16 state
    >>> cache.conv_elements * 2 + cache.state_elements * 2
    2147840
    """
    channels = heads * head_dim + 2 * groups * state
    return StateCache("mamba2", kernel - 1, channels, heads, head_dim, state, dtype, groups, 2 * groups * state, chunk)


def mamba1(hidden: int, inner: int, state: int, kernel: int, dt_rank: int, *, module: str = "mamba") -> Tensors:
    """Return a Mamba1 layer as Jamba has it, with norms on dt, B and C (arXiv 2312.00752, 2403.19887)."""
    return (
        Tensor(f"{module}.in_proj", 2 * inner, hidden, "column", "state"),
        Tensor(f"{module}.conv1d", inner, kernel + 1, "column", "state", linear=False),
        Tensor(f"{module}.x_proj", dt_rank + 2 * state, inner, "row", "state"),
        Tensor(f"{module}.dt_proj", inner, dt_rank, "column", "state"),
        vector(f"{module}.dt_proj.bias", inner, "state", "column"),
        Tensor(f"{module}.A_log", inner, state, "column", "state", linear=False, bits=32),
        vector(f"{module}.D", inner, "state", "column", bits=32),
        vector(f"{module}.norms", dt_rank + 2 * state),
        Tensor(f"{module}.out_proj", hidden, inner, "row", "state"),
    )


def short_conv(hidden: int, kernel: int, *, module: str = "conv") -> Tensors:
    """Return LFM2's gated short convolution."""
    return (
        Tensor(f"{module}.in_proj", 3 * hidden, hidden, "column", "state"),
        Tensor(f"{module}.conv", hidden, kernel, "column", "state", linear=False),
        Tensor(f"{module}.out_proj", hidden, hidden, "row", "state"),
    )


def full_cache(kv_heads: int, head_dim: int, v_dim: int = 0) -> KVCache:
    """Return the cache of a layer with full attention."""
    return KVCache(kv_heads, head_dim, v_dim or head_dim)


def window_cache(kv_heads: int, head_dim: int, window: int, v_dim: int = 0) -> KVCache:
    """Return the cache of a layer with a sliding window."""
    return KVCache(kv_heads, head_dim, v_dim or head_dim, "sliding", window)


def index_cache(dim: int) -> IndexCache:
    """Return the cache of DeepSeek's indexer: `dim` FP8 elements and an FP32 scale for each 128.

    >>> index_cache(128).bytes_per_token
    132
    """
    return IndexCache(dim + dim // 128 * 4)


def latent_cache(kv_rank: int, rope: int, *, sparse: bool = False) -> LatentCache:
    """Return the cache of one latent-attention layer."""
    return LatentCache(kv_rank, rope, sparse)
