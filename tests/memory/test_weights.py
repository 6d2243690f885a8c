"""Weights per rank: how a tensor is cut, what a scheme stores beside it, and the laws that hold for every model."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.catalog import MODELS, all_names, find_model
from tonnage.facts.model import read_model
from tonnage.facts.quantisation import Scheme
from tonnage.facts.shape import ModelShape
from tonnage.facts.tensors import Tensor, elements
from tonnage.memory.parallel import stages
from tonnage.memory.refusals import legal_tp
from tonnage.memory.weights import (
    ExpertPadding,
    WeightRules,
    checkpoint_bytes,
    rank_bytes,
    rank_shape,
    rank_weights,
    scale_bytes,
    served_dtype,
    with_precision,
)
from tonnage.settings import Parallelism
from tonnage.units import GIB, MIB, ceil_div, parse_bytes

ONE = Parallelism()
NAMES = [name for name in all_names() if name != "mistralai/Mistral-Large-3-675B-Instruct-2512"]


@cache
def shape(name: str) -> ModelShape:
    """Return the catalogue's shape of a model."""
    return find_model(name).shape


def tensor(share: str, rows: int, cols: int, **rest: Any) -> Tensor:
    """Return a tensor of this share."""
    return Tensor("t", rows, cols, share, "attention", **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "parallel", "expected"),
    [
        pytest.param(tensor("column", 4096, 4096), Parallelism(tp=4), (1024, 4096, 1), id="column-llama-8b-q"),
        pytest.param(tensor("row", 4096, 14336), Parallelism(tp=8), (4096, 1792, 1), id="row-llama-8b-down"),
        pytest.param(tensor("column", 10, 4), Parallelism(tp=4), (3, 4, 1), id="column-rounds-up"),
        pytest.param(tensor("replicated", 576, 7168), Parallelism(tp=8), (576, 7168, 1), id="latent-down-projection-is-whole"),
        pytest.param(tensor("kv", 1024, 4096, units=8), Parallelism(tp=4), (256, 4096, 1), id="kv-two-heads-a-rank"),
        pytest.param(tensor("kv", 1024, 4096, units=8), Parallelism(tp=8), (128, 4096, 1), id="kv-one-head-a-rank"),
        pytest.param(tensor("kv", 1024, 4096, units=8), Parallelism(tp=16), (128, 4096, 1), id="kv-replicated-beyond-its-heads"),
        pytest.param(tensor("kv", 256, 4096, units=1), Parallelism(tp=8), (256, 4096, 1), id="multi-query"),
        pytest.param(tensor("groups", 2048, 4096, units=8), Parallelism(tp=4), (512, 4096, 1), id="groups-divide"),
        pytest.param(tensor("groups", 256, 4096, units=1), Parallelism(tp=8), (256, 4096, 1), id="one-group-is-replicated"),
        pytest.param(tensor("vocab", 128256, 4096), Parallelism(tp=8), (16032, 4096, 1), id="vocabulary-divides"),
        pytest.param(tensor("vocab", 49155, 4096), Parallelism(tp=1), (49216, 4096, 1), id="vocabulary-is-padded-to-64"),
        pytest.param(tensor("vocab", 49155, 4096), Parallelism(tp=2), (24608, 4096, 1), id="vocabulary-is-padded-then-cut"),
        pytest.param(tensor("column", 2048, 7168, experts=256), Parallelism(tp=8), (256, 7168, 256), id="experts-cut-by-tp"),
        pytest.param(tensor("column", 2048, 7168, experts=256), Parallelism(tp=8, expert=True), (2048, 7168, 32), id="experts-dealt-whole"),
        pytest.param(tensor("column", 2048, 7168, experts=256), Parallelism(dp=8, expert=True), (2048, 7168, 32), id="experts-over-dp"),
        pytest.param(tensor("column", 2048, 7168, experts=256), Parallelism(tp=4, dp=4, expert=True), (2048, 7168, 16), id="over-tp-x-dp"),
        pytest.param(tensor("column", 768, 2048, experts=60), Parallelism(tp=8, expert=True), (768, 2048, 8), id="the-fullest-rank-counts"),
        pytest.param(tensor("column", 64, 8, count=3), Parallelism(tp=2), (32, 8, 3), id="copies"),
        pytest.param(tensor("column", 64, 8), Parallelism(pp=4, dp=2), (64, 8, 1), id="stages-and-replicas-cut-nothing"),
    ],
)
def test_how_a_tensor_is_cut(made: Tensor, parallel: Parallelism, expected: tuple[int, int, int]) -> None:
    """vllm-memory.md, "Weights on a rank": vLLM's column, row, QKV, vocabulary and fused-expert layers."""
    assert rank_shape(made, parallel) == expected


@pytest.mark.parametrize(
    ("scheme", "rows", "cols", "expected"),
    [
        pytest.param(Scheme("fp8-block", 8, block=(128, 128)), 4096, 4096, 32 * 32 * 4, id="fp8-block"),
        pytest.param(Scheme("fp8-block", 8, block=(128, 128)), 576, 7168, 5 * 56 * 4, id="fp8-block-ragged"),
        pytest.param(Scheme("fp8-channel", 8), 4096, 4096, 4096 * 4, id="fp8-channel"),
        pytest.param(Scheme("fp8-tensor", 8), 4096, 4096, 4, id="fp8-tensor"),
        pytest.param(Scheme("fp8-tensor", 8, static=True), 4096, 4096, 8, id="fp8-tensor-with-activations"),
        pytest.param(Scheme("int8-channel", 8), 4096, 4096, 4096 * 4, id="int8-channel"),
        pytest.param(Scheme("int4-awq", 4, group=128, zeros=True), 4096, 4096, 4096 * 32 * 5 // 2, id="awq-scale-2-zero-half"),
        pytest.param(Scheme("int4-gptq", 4, group=128, zeros=True), 4096, 4096, 4096 * 32 * 5 // 2 + 4 * 4096, id="gptq-and-its-index"),
        pytest.param(Scheme("int4-packed", 4, group=128), 4096, 4096, 4096 * 32 * 2, id="packed-symmetric"),
        pytest.param(Scheme("mxfp4", 4, group=32), 2880, 2880, 2880 * 90, id="mxfp4-a-byte-a-group"),
        pytest.param(Scheme("nvfp4", 4, group=16), 4096, 4096, 4096 * 256 + 4, id="nvfp4"),
        pytest.param(Scheme("nvfp4", 4, group=16, static=True), 4096, 4096, 4096 * 256 + 8, id="nvfp4-with-activations"),
    ],
)
def test_what_a_scheme_keeps_beside_a_matrix(scheme: Scheme, rows: int, cols: int, expected: int) -> None:
    """By hand, from the formats: FP32 scales of FP8, FP16 scales and packed zeros of INT4, one byte a group of MXFP4 and NVFP4."""
    assert scale_bytes(scheme, rows, cols) == expected


@pytest.mark.parametrize(
    ("padding", "gib"),
    [
        pytest.param(ExpertPadding(64, 1), 12.85, id="width-to-64"),
        pytest.param(ExpertPadding(128, 256), 13.70, id="marlin"),
    ],
)
def test_mxfp4_experts_are_padded_by_their_kernel(padding: ExpertPadding, gib: float) -> None:
    """vllm-memory.md: gpt-oss-20b is 12.85 GiB in 0.33 and 13.70 in 0.32 for the same checkpoint, by the choice of backend."""
    assert rank_weights(shape("gpt-oss-20b"), ONE, rules=WeightRules(padding)).total / GIB == pytest.approx(gib, abs=0.005)


def test_rotary_tables_are_buffers() -> None:
    """vllm-memory.md: Llama-3.1 keeps 131072 x 128 x 2 B = 32 MiB."""
    held = rank_weights(shape("llama-3.1-8b"), ONE)
    assert held.buffers == 32 * MIB
    assert held.total == sum(held.by_class.values()) + held.buffers


def test_classes_add_up_to_the_whole() -> None:
    """DeepSeek-V3: nearly all of it is experts, and nothing is counted twice."""
    held = rank_weights(shape("deepseek-v3"), ONE)
    assert held.by_class["experts"] / held.total > 0.95
    assert set(held.by_class) == {"embedding", "lm_head", "attention", "mlp", "experts", "router", "norm"}


def test_a_tower_is_left_out_for_the_language_model_alone() -> None:
    """`--language-model-only`: Qwen3.5-4B's tower is 0.33 billion parameters of the 4.54."""
    whole, alone = rank_weights(shape("qwen3.5-4b"), ONE), rank_weights(shape("qwen3.5-4b"), ONE, vision=False)
    assert whole.elements - alone.elements == elements(shape("qwen3.5-4b").vision)
    assert "vision" not in alone.by_class


@pytest.mark.parametrize(
    ("name", "billions", "shared"),
    [
        pytest.param("qwen3.5-4b", 0.121, 0, id="qwen3.5-4b"),
        pytest.param("qwen3.5-27b", 0.425, 0, id="qwen3.5-27b"),
        pytest.param("qwen3-next-80b-a3b-instruct", 1.65, 0, id="qwen3-next"),
        pytest.param("deepseek-v3", 12.5, 129_280 * 7_168, id="deepseek-v3"),
        pytest.param("glm-4.5-air", 3.0, 151_552 * 4_096, id="glm-4.5-air"),
    ],
)
def test_draft_layers_are_loaded_only_where_they_are_used(name: str, billions: float, shared: int) -> None:
    """vllm-memory.md section 6, MTP weights as vLLM's own code makes them; without speculation none is loaded.

    Those of DeepSeek and GLM hold a head, for which the engine puts the target's at start ("Sharing target model lm_head").
    """
    drafted = rank_weights(shape(name), ONE, mtp=True).elements - rank_weights(shape(name), ONE).elements
    assert (drafted + shared) / 1e9 == pytest.approx(billions, rel=0.006)


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        pytest.param(61, 4, (15, 15, 16, 15), id="deepseek-v3"),
        pytest.param(80, 4, (20, 20, 20, 20), id="llama-70b"),
        pytest.param(62, 4, (15, 16, 16, 15), id="gemma-3-27b"),
        pytest.param(36, 5, (7, 7, 7, 8, 7), id="one-left"),
        pytest.param(39, 5, (8, 8, 8, 8, 7), id="four-left"),
        pytest.param(3, 3, (1, 1, 1), id="one-each"),
    ],
)
def test_a_remainder_goes_to_the_stages_before_the_last(layers: int, pp: int, expected: tuple[int, ...]) -> None:
    """vllm-memory.md: one each, counted backwards, so that the last has none, and if possible the first."""
    assert stages(layers, pp) == expected


def test_more_stages_than_layers_are_refused() -> None:
    """The hint says how many there may be."""
    with pytest.raises(InputError, match="pipeline-parallel-size 5 is more than the 4 layers") as caught:
        stages(4, 5)
    assert "4" in caught.value.hint


@given(st.integers(1, 2000), st.integers(1, 64))
def test_stages_deal_every_layer_once_and_evenly(layers: int, pp: int) -> None:
    """The counts sum to the layers and differ by at most one; the last is never the larger."""
    if pp > layers:
        return
    counts = stages(layers, pp)
    assert (len(counts), sum(counts)) == (pp, layers)
    assert max(counts) - min(counts) <= 1
    assert counts[-1] == min(counts)


@given(st.sampled_from(NAMES), st.integers(1, 5), st.sampled_from([1, 2, 4]), st.booleans())
def test_stages_hold_the_model_once_but_for_what_each_repeats(name: str, pp: int, tp: int, mtp: bool) -> None:
    """Every stage holds the tower; the last repeats a tied embedding, or has one for its drafter; gpt-oss keeps its head everywhere."""
    model = shape(name)
    if pp > len(model.layers):
        return
    whole = rank_weights(model, Parallelism(tp=tp), mtp=mtp)
    parts = [rank_weights(model, Parallelism(tp=tp, pp=pp), stage=stage, mtp=mtp) for stage in range(pp)]
    tower = whole.elements - rank_weights(model, Parallelism(tp=tp), mtp=mtp, vision=False).elements
    embedding = rank_bytes(model.embedding[0], Parallelism(tp=tp), Scheme("plain", 0), 16)[0]
    surplus = sum(part.elements for part in parts) - whole.elements - (pp - 1) * tower
    if pp > 1 and (model.tied or (mtp and model.draft)):
        surplus -= embedding
    if model.head_everywhere:
        head = sum(rank_bytes(part, Parallelism(tp=tp), Scheme("plain", 0), 16)[0] for part in model.head)
        surplus -= (pp - 1) * head
    assert surplus == 0


@given(st.sampled_from(NAMES), st.data())
def test_ranks_together_hold_at_least_the_whole(name: str, data: st.DataObject) -> None:
    """Replication and padding add, nothing is lost; for the sizes that the engine starts with."""
    tp = data.draw(st.sampled_from(legal_tp(shape(name), 32)))
    expert = data.draw(st.booleans())
    whole, part = rank_weights(shape(name), ONE), rank_weights(shape(name), Parallelism(tp=tp, expert=expert))
    assert tp * part.elements >= whole.elements
    assert tp * part.total >= whole.total


def test_more_ranks_never_hold_more_each() -> None:
    """Over all models of the catalogue, from TP 1 to 32; but for towers that ranks hold whole where their heads do not divide."""
    for name in NAMES:
        sizes = [rank_weights(shape(name), Parallelism(tp=tp), vision=False).total for tp in (1, 2, 4, 8, 16, 32)]
        assert sizes == sorted(sizes, reverse=True), name


def test_parameters_on_one_card_are_the_models_without_its_drafts() -> None:
    """Over all models: what is loaded on one card is the stored total, less draft layers, with padding and copies beside."""
    for name in NAMES:
        model = shape(name)
        drafts = sum(elements(layer.tensors) for layer in model.draft) + elements(model.draft_extra)
        every = (*model.embedding, *model.head, *model.vision, *(t for layer in model.layers for t in layer.tensors))
        unloaded = sum(t.elements for t in every if not t.loaded)
        copies = sum(t.elements for t in every if not t.stored)
        vocabulary = sum((ceil_div(t.rows, 64) * 64 - t.rows) * t.cols for t in every if t.share == "vocab")
        loaded = model.params_total - drafts - unloaded + copies + vocabulary
        held = rank_weights(model, ONE, rules=WeightRules(ExpertPadding(1, 1))).elements
        assert held == loaded, name


def _published() -> list[tuple[str, float]]:
    """Return (model, published GiB of its files) of the catalogue's records."""
    out = []
    for name in NAMES:
        facts = json.loads((MODELS / f"{name.replace('/', '--', 1)}.json").read_bytes())["facts"]
        if "published_weights" in facts:
            out.append((name, parse_bytes(facts["published_weights"]["value"]) / GIB))
    return out


COUNTED_TWICE = {"openai/gpt-oss-20b": 12.82, "openai/gpt-oss-120b": 60.77}
"""KAITO counts gpt-oss twice, with its original/ and metal copies; the catalogue's README has the served sizes."""


@pytest.mark.parametrize(("name", "gib"), _published())
def test_a_checkpoint_weighs_what_was_published(name: str, gib: float) -> None:
    """KAITO's sizes of files, two decimals, which hold headers and index beside the tensors."""
    served = COUNTED_TWICE.get(name, gib)
    assert checkpoint_bytes(shape(name)) / GIB == pytest.approx(served, abs=0.03)


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        pytest.param("checkpoint", "", id="as-published"),
        pytest.param("auto", "", id="auto"),
        pytest.param("bf16", "", id="bf16"),
        pytest.param("fp8", "FP8", id="fp8"),
        pytest.param("FP8", "FP8", id="any-case"),
        pytest.param("int8", "INT8", id="int8"),
        pytest.param("w8a8", "INT8", id="w8a8"),
        pytest.param("int4", "INT4 (AWQ)", id="int4"),
        pytest.param("awq", "INT4 (AWQ)", id="awq"),
        pytest.param("nvfp4", "NVFP4", id="nvfp4"),
        pytest.param("mxfp4", "MXFP4", id="mxfp4"),
    ],
)
def test_a_precision_that_is_asked_for_is_marked_assumed(asked: str, label: str) -> None:
    """`--weights fp8` on a BF16 model follows the rule of its kind of checkpoint."""
    asked_for = with_precision(shape("llama-3.1-8b"), asked)
    assert asked_for.quantisation.label == label
    assert asked_for.quantisation.assumed is bool(label)


def test_narrower_weights_weigh_less() -> None:
    """mission.md, reducing memory in order of effect: FP8, then INT4; the head and embeddings stay."""
    sizes = [checkpoint_bytes(with_precision(shape("llama-3.1-8b"), word)) for word in ("fp32", "bf16", "fp8", "int4")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 2 * sizes[1]


@pytest.mark.parametrize(
    ("name", "asked", "kind", "said"),
    [
        pytest.param("Qwen/Qwen3-8B-FP8", "bf16", InputError, "an engine does not widen it", id="widen"),
        pytest.param("Qwen/Qwen3-8B-FP8", "int4", InputError, "is not requantised", id="requantise"),
        pytest.param("qwen3-8b", "int3", UnknownError, "weights in 'int3' are not known", id="unknown"),
        pytest.param("qwen3-8b", "fp9", UnknownError, "'fp9'", id="slip"),
    ],
)
def test_a_precision_that_cannot_be_is_refused(name: str, asked: str, kind: type[TonnageError], said: str) -> None:
    """A quantised checkpoint stays what it is; an unknown width is named."""
    with pytest.raises(kind, match=said) as caught:
        with_precision(shape(name), asked)
    assert caught.value.hint


def test_asking_for_what_a_checkpoint_is_changes_nothing() -> None:
    """`--weights fp8` on an FP8 checkpoint is no contradiction."""
    assert with_precision(shape("Qwen/Qwen3-8B-FP8"), "fp8") == shape("Qwen/Qwen3-8B-FP8")


@pytest.mark.parametrize(
    ("dtype", "bf16", "served"),
    [
        pytest.param("bfloat16", True, "bfloat16", id="bf16"),
        pytest.param("bfloat16", False, "float16", id="bf16-before-ampere"),
        pytest.param("float16", True, "float16", id="fp16"),
        pytest.param("float32", True, "bfloat16", id="fp32-is-served-in-16-bits"),
        pytest.param("float32", False, "float16", id="fp32-before-ampere"),
    ],
)
def test_the_dtype_an_engine_serves_in(dtype: str, bf16: bool, served: str) -> None:
    """vLLM's dtype "auto": FP32 checkpoints are cast, and cards before 8.0 have no BF16."""
    llama = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64,
        "vocab_size": 64, "max_position_embeddings": 64, "torch_dtype": dtype,
    }  # fmt: skip
    assert served_dtype(read_model(llama), bf16=bf16) == served
