"""Every figure of ../shared/reference/vllm-memory.md, sections 2 to 7 and 10: numbers from vLLM's own code, row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.model import read_model
from tonnage.facts.shape import CompressedCache, LatentCache, ModelShape, StateCache
from tonnage.memory.allocator import Allocation, allocate
from tonnage.memory.defaults import Host, resolved, tokens_in_flight
from tonnage.memory.pages import attention_token_bytes, state_bytes
from tonnage.memory.weights import MARLIN, ExpertPadding, WeightRules, rank_weights
from tonnage.settings import EngineSettings, Parallelism
from tonnage.units import GIB, MIB, ceil_div

ONE = Parallelism()
H100 = Host(85_899_345_920, (9, 0), "NVIDIA H100 80GB HBM3")
A100 = Host(85_899_345_920, (8, 0), "NVIDIA A100-SXM4-80GB")
L40S = Host(47_696_000_000, (8, 9), "NVIDIA L40S")
L4 = Host(23_654_532_382, (8, 9), "NVIDIA L4")

GRANITE = "granite-4.0-h-small"
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


@cache
def shape(name: str) -> ModelShape:
    """Return the catalogue's shape of a model."""
    return find_model(name).shape


def cut(
    model: str | ModelShape,
    *,
    host: Host = H100,
    minor: int = 33,
    pool: float = 20,
    length: int = 32_768,
    parallel: Parallelism = ONE,
    **more: Any,
) -> Allocation:
    """Return how vLLM 0.minor cuts a pool of so many GiB on a card, with its defaults."""
    made = shape(model) if isinstance(model, str) else model
    rules = rules_for("vllm", (0, minor))
    asked = EngineSettings(release=(0, minor), parallel=parallel, max_model_len=length, **more)
    return allocate(made, resolved(asked, made, host, rules), rules, host.capability, int(pool * GIB))


def concurrency(made: Allocation) -> float:
    """Return the concurrency at max_model_len, as the engine prints it."""
    assert made.settings.max_model_len
    return made.concurrency(made.settings.max_model_len)


@pytest.mark.parametrize(("length", "thousands"), [(8_192, 436), (32_768, 581), (131_072, 776)], ids=["8k", "32k", "131k"])
def test_printed_tokens_of_gpt_oss_depend_on_the_length_limit(length: int, thousands: int) -> None:
    """Section 2: gpt-oss-20b with 20 GiB prints 436k, 581k and 776k tokens."""
    assert cut("gpt-oss-20b", length=length).printed_tokens // 1000 == pytest.approx(thousands, abs=1)


@pytest.mark.parametrize(("tp", "gib"), [(1, 626.9), (8, 79.3), (16, 40.2)], ids=["tp1", "tp8", "tp16"])
def test_weights_of_deepseek_v3_on_a_rank(tp: int, gib: float) -> None:
    """Section 2: 626.9 GiB at TP1, 79.3 at TP8, 40.2 at TP16."""
    assert rank_weights(shape("deepseek-v3"), Parallelism(tp=tp)).total / GIB == pytest.approx(gib, abs=0.06)


def test_weights_of_gpt_oss_by_release_and_card() -> None:
    """Section 2: 12.85 GiB in 0.33 on Hopper, 13.70 in 0.32."""
    sizes = [rank_weights(shape("gpt-oss-20b"), ONE, rules=WeightRules(p)).total / GIB for p in (ExpertPadding(64, 1), MARLIN)]
    assert [round(size, 2) for size in sizes] == [12.85, 13.70]
    assert rules_for("vllm", (0, 33)).mxfp4_expert_padding["9.0"] == [64, 1]
    assert rules_for("vllm", (0, 32)).mxfp4_expert_padding == {"other": [MARLIN.inner, MARLIN.hidden]}


@pytest.mark.parametrize(("stage", "billions"), [(0, 9.08), (1, 8.56), (2, 8.56), (3, 9.08)])
def test_stages_of_llama_70b(stage: int, billions: float) -> None:
    """Section 2: PP4 TP2 holds 9.08, 8.56, 8.56 and 9.08e9 parameters; the embedding first, the head last."""
    held = rank_weights(shape("llama-3.3-70b-instruct"), Parallelism(tp=2, pp=4), stage=stage)
    assert held.elements / 1e9 == pytest.approx(billions, abs=0.005)


def test_experts_of_deepseek_v3_over_eight_data_parallel_ranks() -> None:
    """Section 2: dp8 with expert parallelism holds 98.9e9 parameters a rank, attention whole."""
    assert rank_weights(shape("deepseek-v3"), Parallelism(dp=8, expert=True)).elements / 1e9 == pytest.approx(98.9, abs=0.05)


def test_tensor_parallelism_beyond_the_kv_heads_gains_nothing() -> None:
    """Section 3: Qwen3-32B has the same page at TP8 and TP16."""
    eight, sixteen = (cut("qwen3-32b", parallel=Parallelism(tp=tp)) for tp in (8, 16))
    assert eight.bytes_per_block == sixteen.bytes_per_block


@pytest.mark.parametrize(
    ("model", "host", "cache", "block"),
    [
        pytest.param("qwen3-8b", H100, "auto", 16, id="flash-attention"),
        pytest.param("qwen3-8b", L4, "fp8", 16, id="flash-attention-fp8"),
        pytest.param("deepseek-v3", H100, "auto", 16, id="latent"),
        pytest.param("deepseek-v3", H100, "fp8", 64, id="latent-fp8-on-hopper"),
        pytest.param("deepseek-v3", A100, "fp8", 16, id="latent-fp8-before"),
        pytest.param("deepseek-v3.2", H100, "auto", 64, id="sparse"),
        pytest.param("deepseek-v3.2", H100, "fp8_ds_mla", 64, id="sparse-fp8"),
    ],
)
def test_the_block_an_attention_backend_chooses(model: str, host: Host, cache: str, block: int) -> None:
    """Section 3: 16; 64 for FlashMLA (FP8 on Hopper) and for sparse attention."""
    assert cut(model, host=host, kv_cache_dtype=cache).block_size == block


@pytest.mark.parametrize(
    ("cache", "page"),
    [
        ("auto", 65_536), ("bfloat16", 65_536), ("bf16", 65_536), ("fp8", 32_768), ("fp8_e4m3", 32_768), ("fp8_e5m2", 32_768),
        ("int8_per_token_head", 33_792), ("fp8_per_token_head", 33_792), ("int4_per_token_head", 17_408),
    ],
)  # fmt: skip
def test_pages_per_cache_dtype(cache: str, page: int) -> None:
    """Section 3: head 128, 8 heads, block 16; scales of two times four bytes a token and head where they are kept."""
    (group,) = cut("qwen3-8b", kv_cache_dtype=cache).groups
    assert (group.page.bytes, group.page.block) == (page, 16)


@pytest.mark.parametrize(
    ("sparse", "cache", "expected"),
    [
        pytest.param(False, "bfloat16", 1152, id="bf16"),
        pytest.param(False, "fp8", 576, id="fp8"),
        pytest.param(True, "bfloat16", 1152, id="sparse-bf16"),
        pytest.param(True, "fp8", 656, id="sparse-fp8-means-fp8-ds-mla"),
        pytest.param(True, "fp8_ds_mla", 656, id="sparse-fp8-ds-mla"),
        pytest.param(True, "nvfp4_ds_mla", 352, id="sparse-nvfp4"),
    ],
)
def test_a_latent_token_of_deepseek(sparse: bool, cache: str, expected: int) -> None:
    """Section 3: 576 elements a token and layer; 512 FP8 + 16 B of scales + 128 B rotary where it is sparse."""
    assert attention_token_bytes(LatentCache(512, 64, sparse), 1, cache) == expected


@pytest.mark.parametrize(("cache", "latent", "block"), [("auto", 64 * 1152, 5_012_736), ("fp8", 41_984, 3_076_352)], ids=["bf16", "fp8"])
def test_sparse_attention_keeps_latents_and_indexes_in_one_group(cache: str, latent: int, block: int) -> None:
    """Section 3: DeepSeek-V3.2 has 61 latents and 61 indexes of 8,448 B a block: 5,012,736 and 3,076,352 B."""
    made = cut("deepseek-v3.2", kv_cache_dtype=cache)
    (group,) = made.groups
    assert sorted((page.bytes, count) for page, count in group.mixed) == sorted([(latent, 61), (8_448, 61)])
    assert made.bytes_per_block == block


def test_layers_that_share_a_cache_cost_nothing() -> None:
    """Section 3: Gemma-3n's layers with a target get no spec: 20 of 35 own a cache."""
    groups = cut("google/gemma-3n-E4B-it").groups
    assert sum(group.layers for group in groups) == 20
    assert len(shape("google/gemma-3n-E4B-it").layers) == 35


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param("gpt-oss-20b", {"sliding": 1, "full": 1}, id="gpt-oss-20b"),
        pytest.param("gemma-3-27b-it", {"sliding": 6, "full": 1}, id="gemma-3-27b"),
        pytest.param("llama-4-scout-17b-16e-instruct", {"chunked": 3, "full": 1}, id="scout"),
        pytest.param("qwen3.5-4b", {"state": 3, "full": 1}, id="qwen3.5-4b"),
        pytest.param("qwen3-32b", {"full": 1}, id="plain"),
    ],
)
def test_groups_of_published_models(model: str, expected: dict[str, int]) -> None:
    """Section 4: how many groups each kind of layer makes."""
    kinds = [group.page.kind for group in cut(model).groups]
    assert {kind: kinds.count(kind) for kind in kinds} == expected


def test_a_block_of_gemma_3_27b_is_ten_layers() -> None:
    """Section 4: 52 sliding and 10 full layers; the smallest kind sets the size."""
    made = cut("gemma-3-27b-it")
    assert {group.slots for group in made.groups} == {10}
    assert made.bytes_per_block == 10 * 16 * 16 * 256 * 2


@pytest.mark.parametrize(
    ("more", "times"),
    [
        pytest.param({}, 1.91, id="two-batches-in-flight"),
        pytest.param({"async_scheduling": False}, 2.97, id="one-batch-in-flight"),
        pytest.param({"disable_hybrid_kv_cache_manager": True}, 1.29, id="windows-as-full"),
    ],
)
def test_concurrency_of_gemma_3_27b_at_32k(more: dict[str, Any], times: float) -> None:
    """Section 4: 1.91x, 2.97x with async_scheduling=false, 1.29x with the hybrid manager disabled; 20 GiB, H100."""
    assert concurrency(cut("gemma-3-27b-it", **more)) == pytest.approx(times, abs=0.006)


def test_windows_cost_as_much_as_full_layers_where_the_batch_exceeds_the_length() -> None:
    """Section 4: at a length of 8,192 the sliding groups of Gemma-3-27b cost as much as full ones, and one block more."""
    made = cut("gemma-3-27b-it", length=8_192)
    blocks = [made.group_blocks(group, 8_192) for group in made.groups]
    assert blocks == [513] * 6 + [512]


def test_a_smaller_batch_raises_the_concurrency_of_windows() -> None:
    """Section 4: reducing --max-num-batched-tokens raises the printed concurrency of sliding-window models."""
    counts = [concurrency(cut("gemma-3-27b-it", max_num_batched_tokens=batch)) for batch in (16_384, 8_192, 4_096, 2_048)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


SAME_INPUT: list[tuple[str, Host, dict[str, Any], dict[int, float]]] = [
    (
        "qwen3.5-9b",
        H100,
        {"kv_cache_dtype": "fp8"},
        {19: 32.63, 20: 32.63, 25: 32.63, 26: 32.63, 27: 32.63, 28: 28.18, 32: 28.18, 33: 24.08},
    ),
    ("qwen3.5-9b", L40S, {"kv_cache_dtype": "fp8"}, {19: 32.63, 25: 32.63, 27: 32.63, 28: 28.18, 32: 28.18, 33: 28.18}),
    (
        "qwen3.5-9b",
        H100,
        {"kv_cache_dtype": "fp8", "enable_prefix_caching": True},
        {19: 28.18, 25: 28.18, 27: 28.18, 28: 28.18, 32: 28.18, 33: 24.08},
    ),
    (GRANITE, H100, {}, {19: 30.3, 20: 30.3, 25: 30.3, 27: 30.3, 28: 24.8, 31: 24.8, 32: 21.0, 33: 21.0}),
    ("gemma-3-27b-it", H100, {}, {19: 1.826, 20: 1.826, 25: 1.826, 26: 1.142, 28: 1.142, 33: 1.142}),
    ("gpt-oss-20b", H100, {}, {19: 17.67, 20: 17.67, 25: 17.67, 26: 13.33, 28: 13.33, 33: 13.33}),
    ("deepseek-v3.2", H100, {"kv_cache_dtype": "fp8_ds_mla"}, {19: 13.63, 20: 13.63, 26: 13.63, 28: 13.63, 33: 13.63}),
]
"""Section 4, "The same input through the releases": 10 GiB of cache, 16,384 tokens, TP1."""


@pytest.mark.parametrize(
    ("model", "host", "more", "minor", "times"),
    [
        pytest.param(model, host, more, minor, times, id=f"{model}-{host.name.split()[1]}-{'-'.join(more)}-0.{minor}")
        for model, host, more, releases in SAME_INPUT
        for minor, times in releases.items()
    ],
)
def test_the_same_input_through_the_releases(model: str, host: Host, more: dict[str, Any], minor: int, times: float) -> None:
    """The table of section 4, within its rounding."""
    made = cut(model, host=host, minor=minor, pool=10, length=16_384, **more)
    assert concurrency(made) == pytest.approx(times, abs=0.051 if times in (30.3, 24.8, 21.0) else 0.0051)


@pytest.mark.parametrize(
    ("model", "more", "minor", "printed"),
    [
        pytest.param("qwen3.5-9b", {"kv_cache_dtype": "fp8"}, 19, 163_680, id="qwen3.5-9b-0.19"),
        pytest.param("qwen3.5-9b", {"kv_cache_dtype": "fp8"}, 20, 534_635, id="qwen3.5-9b-0.20"),
        pytest.param("gemma-3-27b-it", {}, 19, 18_720, id="gemma-3-27b-0.19"),
        pytest.param("gemma-3-27b-it", {}, 20, 29_919, id="gemma-3-27b-0.20"),
        pytest.param("gpt-oss-20b", {}, 19, 218_448, id="gpt-oss-20b-0.19"),
        pytest.param("gpt-oss-20b", {}, 20, 289_567, id="gpt-oss-20b-0.20"),
        pytest.param("gpt-oss-20b", {}, 26, 218_341, id="gpt-oss-20b-0.26"),
    ],
)
def test_printed_tokens_through_the_releases(model: str, more: dict[str, Any], minor: int, printed: int) -> None:
    """Section 4, the same table: the formula of the log line changed at 0.20."""
    assert cut(model, minor=minor, pool=10, length=16_384, **more).printed_tokens == printed


@pytest.mark.parametrize(("minor", "blocks"), [(25, 577), (26, 1_025)], ids=["one-batch", "two-batches"])
def test_blocks_of_a_sliding_group_of_gemma_3_27b(minor: int, blocks: int) -> None:
    """Section 4: 577 blocks a sliding group, 1,025 with two batches in flight (the whole of 16,384 tokens, and one)."""
    made = cut("gemma-3-27b-it", minor=minor, length=16_384)
    assert {made.group_blocks(group, 16_384) for group in made.groups if group.page.kind == "sliding"} == {blocks}


@pytest.mark.parametrize(
    ("host", "minor", "flight"),
    [(L40S, 25, 2_048), (L40S, 26, 4_096), (H100, 25, 8_192), (H100, 26, 16_384)],
    ids=["l40s-0.25", "l40s-0.26", "h100-0.25", "h100-0.26"],
)
def test_tokens_in_flight(host: Host, minor: int, flight: int) -> None:
    """Section 4: 2,048 batched tokens on an L40S, 8,192 on an H100, and two batches in flight from 0.26."""
    made = cut("qwen3-8b", host=host, minor=minor)
    assert tokens_in_flight(made.settings, made.rules) == flight


def test_the_state_of_qwen3_5_4b() -> None:
    """Section 5: 49,152 B of convolution and 2,097,152 B of FP32 matrix a layer; 24 layers are 49.1 MiB."""
    states = [cache for cache in shape("qwen3.5-4b").caches if isinstance(cache, StateCache)]
    assert {state_bytes(cache, 1, "bfloat16") for cache in states} == {2_146_304}
    assert states[0].conv_elements * 2 == 49_152
    assert sum(state_bytes(cache, 1, "bfloat16") for cache in states) / MIB == pytest.approx(49.1, abs=0.05)


BLOCKS = [
    ("qwen3.5-4b", "auto", 528, 576),
    ("qwen3.5-9b", "auto", 528, 576),
    ("qwen3.5-4b", "fp8", 1_056, 1_088),
    ("qwen3.5-9b", "fp8", 1_056, 1_088),
    ("qwen3.5-27b", "auto", 784, 832),
    ("qwen3.5-35b-a3b", "auto", 1_056, 1_088),
    ("qwen3-next-80b-a3b-instruct", "auto", 544, 576),
    (GRANITE, "auto", 528, 528),
    (NEMOTRON, "auto", 2_096, 2_096),
    ("nvidia/Nemotron-H-56B-Base-8K", "auto", 4_128, 4_128),
    ("kimi-k3", "auto", 5_760, 5_760),
]


@pytest.mark.parametrize(("model", "cache", "before", "hopper"), BLOCKS, ids=[f"{row[0]}-{row[1]}" for row in BLOCKS])
def test_attention_blocks_of_hybrids(model: str, cache: str, before: int, hopper: int) -> None:
    """Section 5: 0.32 anywhere and 0.33 on capability 8.x against 0.33 on 9.0."""
    got = [
        cut(model, host=host, minor=minor, length=8_192, kv_cache_dtype=cache).block_size
        for host, minor in ((H100, 32), (L40S, 33), (A100, 33), (H100, 33))
    ]
    assert got == [before, before, before, hopper]


def test_a_checkpoint_may_declare_its_cache() -> None:
    """Section 3: ModelOpt NVFP4 Qwen3.6-27B asks for FP8, block 1,600 as with --kv-cache-dtype fp8."""
    assert cut("nvidia/Qwen3.6-27B-NVFP4").block_size == cut("qwen3.6-27b", kv_cache_dtype="fp8").block_size == 1_600


@pytest.mark.parametrize("minor", [32, 33])
@pytest.mark.parametrize(
    ("caching", "blocks", "times"), [pytest.param(True, 22, 38.6, id="with-caching"), pytest.param(False, 19, 44.7, id="without")]
)
def test_the_l4_example(minor: int, caching: bool, blocks: int, times: float) -> None:
    """Section 5: Qwen3.5-4B, FP8 cache, 16,000 tokens, 13.7 GiB: blocks of 1,056 tokens and 17,301,504 B."""
    made = cut("qwen3.5-4b", host=L4, minor=minor, pool=13.7, length=16_000, kv_cache_dtype="fp8", enable_prefix_caching=caching)
    assert (made.block_size, made.bytes_per_block) == (1_056, 17_301_504)
    assert made.sequence_blocks(16_000) == blocks
    assert concurrency(made) == pytest.approx(times, abs=0.05)


@pytest.mark.parametrize(
    ("model", "with_caching", "without"),
    [
        pytest.param("qwen3.5-4b", 17.2, 18.8, id="qwen3.5-4b"),
        pytest.param(GRANITE, 27.6, 34.5, id="granite-4-h-small"),
        pytest.param(NEMOTRON, 59.5, 83.4, id="nemotron-3-nano"),
    ],
)
def test_what_prefix_caching_costs_hybrids(model: str, with_caching: float, without: float) -> None:
    """Section 5: H100, 0.33, 20 GiB, 32k."""
    assert concurrency(cut(model)) == pytest.approx(with_caching, abs=0.051)
    assert concurrency(cut(model, enable_prefix_caching=False)) == pytest.approx(without, abs=0.051)


def test_a_short_request_of_a_hybrid_takes_whole_blocks() -> None:
    """Section 5: Qwen3.5-4B on an H100: 1 token takes 9 + 1 blocks, 189 MB; 16k takes 38, 684 MiB; 1,137 blocks; 29.92x."""
    made = cut("qwen3.5-4b", length=16_384)
    assert (made.sequence_blocks(1), made.sequence_blocks(16_384)) == (10, 38)
    assert made.sequence_bytes(1) / 1e6 == pytest.approx(189, abs=0.5)
    assert made.sequence_bytes(1) == 180 * MIB
    assert made.sequence_bytes(16_384) == 684 * MIB
    assert (made.num_blocks, made.bytes_per_block) == (1_137, 18_874_368)
    assert concurrency(made) == pytest.approx(29.92, abs=0.005)


@pytest.mark.parametrize(
    ("model", "host", "minor", "a_group"),
    [
        pytest.param("qwen3.5-4b", H100, 33, 3, id="gdn-hopper-0.33"),
        pytest.param("qwen3.5-4b", H100, 32, 2, id="gdn-hopper-0.32"),
        pytest.param("qwen3.5-4b", L4, 33, 2, id="gdn-ada-0.33"),
        pytest.param("qwen3.5-4b", A100, 32, 2, id="gdn-ampere-0.32"),
        pytest.param(GRANITE, H100, 31, 2, id="mamba2-0.31"),
        pytest.param(GRANITE, H100, 32, 3, id="mamba2-hopper-0.32"),
        pytest.param(GRANITE, L40S, 32, 3, id="mamba2-ada-0.32"),
        pytest.param("kimi-k3", H100, 28, 2, id="kda-hopper-0.28"),
        pytest.param("kimi-k3", H100, 29, 3, id="kda-hopper-0.29"),
        pytest.param("kimi-k3", L40S, 33, 2, id="kda-ada-0.33"),
    ],
)
def test_state_blocks_of_a_sequence(model: str, host: Host, minor: int, a_group: int) -> None:
    """Section 5: two with prefix caching, three in the listed cases; one without, whatever the length."""
    for caching, expected in ((True, a_group), (False, 1)):
        made = cut(model, host=host, minor=minor, length=16_384, enable_prefix_caching=caching)
        states = [group for group in made.groups if group.page.kind == "state"]
        assert {made.group_blocks(group, tokens) for group in states for tokens in (1, 16_384)} == {expected}


def test_mode_all_keeps_a_state_at_every_block() -> None:
    """Section 5: up to 0.27 prefix caching asked for on Granite gives 220 blocks a request against 41."""
    asked, default = (cut(GRANITE, minor=27, length=16_384, enable_prefix_caching=caching) for caching in (True, None))
    assert (asked.prefix_mode, default.prefix_mode) == ("all", "none")
    assert (asked.sequence_blocks(16_384), default.sequence_blocks(16_384)) == (220, 41)


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        pytest.param("qwen3.5-4b", 8, 9, id="qwen3.5-4b"),
        pytest.param("deepseek-v3", 61, 62, id="deepseek-v3"),
        pytest.param("glm-4.5-air", 46, 47, id="glm-4.5-air"),
    ],
)
def test_a_draft_layer_adds_its_cache(model: str, before: int, after: int) -> None:
    """Section 6: one more attention layer in the group; Qwen3.5-4B goes from 18.87 to 21.23 MB a block."""
    alone, drafting = cut(model), cut(model, num_speculative_tokens=1)
    assert (alone.groups[-1].slots, drafting.groups[-1].slots) == (before, after)
    assert drafting.bytes_per_block * before == alone.bytes_per_block * after
    if model == "qwen3.5-4b":
        assert (round(alone.bytes_per_block / 1e6, 2), round(drafting.bytes_per_block / 1e6, 2)) == (18.87, 21.23)


@pytest.mark.parametrize("drafted", [1, 3])
def test_speculative_tokens_take_state_blocks(drafted: int) -> None:
    """Section 6: Mamba + num_spec blocks a group."""
    alone, drafting = cut("qwen3.5-4b"), cut("qwen3.5-4b", num_speculative_tokens=drafted)
    state = next(group for group in drafting.groups if group.page.kind == "state")
    assert drafting.group_blocks(state, 1) == alone.group_blocks(alone.groups[0], 1) + drafted


def test_qwen3_5_4b_is_4_66_billion_with_its_draft() -> None:
    """Section 6: 4.539 + 0.121 = 4.660e9."""
    bare = rank_weights(shape("qwen3.5-4b"), ONE).elements
    drafting = rank_weights(shape("qwen3.5-4b"), ONE, mtp=True).elements
    assert [round(count / 1e9, 3) for count in (bare, drafting - bare, drafting)] == [4.539, 0.121, 4.660]


@pytest.mark.parametrize(("dcp", "times"), [(1, 9.33), (2, 18.65), (8, 74.6)])
def test_decode_context_parallelism_shards_tokens(dcp: int, times: float) -> None:
    """Section 7: DeepSeek-V3 at TP8 with 20 GiB: 9.33x, 18.65x with dcp 2, 74.6x with dcp 8."""
    made = cut("deepseek-v3", parallel=Parallelism(tp=8, dcp=dcp))
    assert concurrency(made) == pytest.approx(times, abs=0.006)
    assert made.sequence_blocks(32_768) == ceil_div(32_768 // dcp, 16)


def test_stages_have_the_blocks_of_the_poorest() -> None:
    """Section 7: num_blocks is the least of the stages; DeepSeek-V3 over 4 stages has one of 16 layers."""
    whole, staged = cut("deepseek-v3"), cut("deepseek-v3", parallel=Parallelism(pp=4))
    assert whole.bytes_per_block // 61 == staged.bytes_per_block // 16
    assert staged.stage == 2


def test_gemma_4_on_hopper_in_fp8() -> None:
    """Section 8: its FP8 blocks are 64 and 128 in 0.33."""
    pages = {(group.page.kind, group.page.block) for group in cut("google/gemma-4-26B-A4B-it", kv_cache_dtype="fp8").groups}
    assert pages == {("sliding", 64), ("full", 128)}


@pytest.mark.parametrize(
    ("minor", "cache", "ratio"),
    [
        pytest.param(31, "fp8", 1, id="fp8-without-effect-until-0.31"),
        pytest.param(32, "fp8", 2, id="fp8-halves-from-0.32"),
        pytest.param(20, "auto", 1, id="keys-and-values-of-their-own-since-0.20"),
        pytest.param(19, "auto", 320 / 384, id="values-padded-to-keys-in-0.19"),
    ],
)
def test_pages_of_mimo_v2(minor: int, cache: str, ratio: float) -> None:
    """Section 3: keys of 192 and values of 128 elements; padded in 0.19.1; FP8 accepted without effect from 0.20 to 0.31."""
    per_page = cut("MiMo-V2-Flash", minor=25).bytes_per_block
    assert per_page / cut("MiMo-V2-Flash", minor=minor, kv_cache_dtype=cache).bytes_per_block == pytest.approx(ratio)


TINY = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "intermediate_size": 256, "vocab_size": 1024, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("block", "pool_blocks", "blocks", "printed", "times"),
    [
        pytest.param(None, 8_192, 8_192, 1_048_576, 512.0, id="one-gib"),
        pytest.param(32, 80, 80, 2_560, 1.25, id="eighty-blocks-of-32"),
    ],
)
def test_a_tiny_llama_on_the_cpu_build(block: int | None, pool_blocks: int, blocks: int, printed: int, times: float) -> None:
    """Section 10: 1 KiB a token; a real server printed 1,048,576 tokens and 512.00x, and 2,560 and 1.25x."""
    tiny = read_model(TINY)
    rules = rules_for("vllm", (0, 32))
    asked = EngineSettings(release=(0, 32), device="cpu", max_model_len=2_048, block_size=block)
    settings = resolved(asked, tiny, Host(64 * GIB, None, "CPU"), rules)
    made = allocate(tiny, settings, rules, None, pool_blocks * (block or 128) * 1024)
    assert (made.num_blocks, made.printed_tokens, made.block_size) == (blocks, printed, block or 128)
    assert concurrency(made) == times


@pytest.mark.parametrize(
    ("minor", "host", "blocks"),
    [
        pytest.param(20, H100, 7_762, id="0.20-hopper"),
        pytest.param(24, L40S, 2_066, id="0.24-ada"),
        pytest.param(26, H100, 15_268, id="0.26-hopper"),
        pytest.param(26, L40S, 3_964, id="0.26-ada"),
        pytest.param(28, H100, 6_724, id="0.28-hopper"),
        pytest.param(28, L40S, 1_754, id="0.28-ada"),
    ],
)
def test_blocks_of_a_request_of_deepseek_v4(minor: int, host: Host, blocks: int) -> None:
    """Section 2: until 0.26 the concurrency weighs groups by their first page; DeepSeek-V4 shows it plainly (rows D0854 to D1941)."""
    assert any(isinstance(cache, CompressedCache) for cache in shape("deepseek-v4-flash").caches)
    made = cut("deepseek-v4-flash", host=host, minor=minor, length=16_384)
    assert round(made.num_blocks / concurrency(made)) == blocks
