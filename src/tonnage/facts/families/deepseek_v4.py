"""DeepSeek-V4: a window of raw tokens in every layer, compressed streams beside it, hyper-connections, FP4 experts.

A layer with compression ratio 4 keeps one entry for 4 tokens and an index; with 128 one for 128; with 0 the window alone.
Sources: the published config.json and parameter counts (data/models); vLLM 0.33's model code for shapes.
"""

from __future__ import annotations

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import Tensors, experts, mlp, norms
from tonnage.facts.config import Config
from tonnage.facts.families.common import Trunk, assemble, draft_count, interleave, trunk, vector
from tonnage.facts.shape import CompressedCache, Layer, ModelShape, RopeTable
from tonnage.facts.tensors import Tensor

RATIOS = (0, 4, 128)


def read(c: Config, architecture: str, outer: Config | None = None, vision: Tensors = ()) -> ModelShape:
    """Return the shape of a DeepSeek-V4 model."""
    t = trunk(c, outer=outer)
    ratios = c.integers("compress_ratios")
    if len(ratios) < t.layers:
        raise InputError(f"compress_ratios has {len(ratios)} entries for {t.layers} layers", where=c.where)
    for ratio in ratios[: t.layers]:
        if ratio not in RATIOS:
            raise UnknownError(f"compress_ratios holds {ratio}, which is not understood", where=c.where, hint="known are 0, 4 and 128")
    rope, window, index_dim = c.integer("qk_rope_head_dim"), c.integer("sliding_window"), c.integer("index_head_dim")
    count, inner, streams = c.integer("n_routed_experts"), c.integer("moe_intermediate_size"), c.integer("hc_mult", default=4)
    hashed = c.integer("num_hash_layers", default=0, low=0)
    shared = inner * c.integer("n_shared_experts", default=0, low=0)
    attend, ranks = _attention(c, t), c.integer("q_lora_rank")
    mixture = experts(t.hidden, inner, count, correction=True, module="ffn") + mlp(t.hidden, shared, module="ffn.shared_experts")
    per_token = c.integer("num_experts_per_tok")
    table = Tensor("ffn.gate.tid2eid", t.vocab, per_token, "replicated", "router", linear=False, bits=32)
    table_only = (*tuple(tensor for tensor in mixture if "correction" not in tensor.name), table)
    own = {
        0: (),
        4: _compressor("attn.compressor", t.hidden, t.head_dim, 4, 2)
        + _compressor("attn.indexer.compressor", t.hidden, index_dim, 4, 2)
        + _indexer(t.hidden, ranks, c.integer("index_n_heads"), index_dim),
        128: _compressor("attn.compressor", t.hidden, t.head_dim, 128, 1),
    }

    def build(kind: str) -> Layer:
        ratio, feed = kind.split("+")
        number = int(ratio)
        cache = CompressedCache(t.head_dim, rope, number, window, index_dim if number == 4 else 0)
        tensors = (
            attend + own[number] + norms(t.hidden, 2) + hyper_connections(t.hidden, streams) + (table_only if feed == "hash" else mixture)
        )
        return Layer(f"compressed {ratio}" if number else "window", (cache,), tensors)

    kinds = [f"{ratio}+{'hash' if i < hashed else 'moe'}" for i, ratio in enumerate(ratios[: t.layers])]
    head = (
        *norms(t.hidden, 1),
        Tensor("hc_head", streams, streams * t.hidden, "replicated", "norm", linear=False, bits=32),
        vector("hc_head.base", streams + 1, bits=32),
    )
    extra_layers = draft_count(c)
    draft = (build("0+moe"),) * extra_layers
    extra: Tensors = (
        Tensor("mtp.e_proj", t.hidden, t.hidden, "replicated", "draft", count=2),
        vector("mtp.norms", t.hidden, "draft", count=3),
        Tensor("mtp.hc_head", streams, streams * t.hidden, "replicated", "draft", linear=False, bits=32),
        vector("mtp.hc_head.base", streams + 1, "draft", bits=32),
    )
    c.ignore("index_topk", "compress_rope_theta", "expert_dtype")
    return assemble(
        c, architecture, t, interleave(kinds, build), final=head, vision=vision, draft=draft, draft_extra=extra if extra_layers else (),
        moe=(count, per_token, inner, shared), rope=(RopeTable(t.max_position, rope, 32),) * 2,
    )  # fmt: skip


def _attention(c: Config, t: Trunk) -> Tensors:
    q_rank, groups, o_rank = c.integer("q_lora_rank"), c.integer("o_groups"), c.integer("o_lora_rank")
    return (
        Tensor("attn.wqa_wkv", q_rank + t.head_dim, t.hidden, "replicated", "attention"),
        Tensor("attn.wq_b", t.heads * t.head_dim, q_rank, "column", "attention"),
        Tensor("attn.wo_a", groups * o_rank, t.heads * t.head_dim // groups, "column", "attention", linear=True),
        Tensor("attn.wo_b", t.hidden, groups * o_rank, "row", "attention"),
        vector("attn.norms", q_rank + t.head_dim),
        vector("attn.sink", t.heads, "attention", "column", bits=32),
    )


def _compressor(module: str, hidden: int, dim: int, ratio: int, overlap: int) -> Tensors:
    return (
        Tensor(f"{module}.ape", ratio, overlap * dim, "replicated", "attention", linear=False, bits=32),
        Tensor(f"{module}.wkv_wgate", 2 * overlap * dim, hidden, "replicated", "attention", linear=False),
        vector(f"{module}.norm", dim),
    )


def _indexer(hidden: int, q_rank: int, heads: int, dim: int) -> Tensors:
    return (
        Tensor("attn.indexer.wq_b", heads * dim, q_rank, "replicated", "attention"),
        Tensor("attn.indexer.weights_proj", heads, hidden, "replicated", "attention", linear=False),
    )


def hyper_connections(hidden: int, streams: int) -> Tensors:
    """Return the mixing matrices of `streams` residual streams, twice a layer, in FP32."""
    mixed = (2 + streams) * streams
    return (
        Tensor("hc.fn", mixed, streams * hidden, "replicated", "norm", count=2, linear=False, bits=32),
        vector("hc.base", mixed + 3, count=2, bits=32),
    )
