"""Figures that other people published, from ../shared/mission.md section 1 and ../shared/reference/peers.md, row by row.

Each is recomputed from a model's config by our arithmetic; a tool that answers one of the wrong values of peers.md fails here.
"""

from __future__ import annotations

from functools import cache

import pytest

from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.model import read_model
from tonnage.facts.shape import KVCache, ModelShape
from tonnage.memory.allocator import allocate
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.kv import ContextCost, context_cost, ideal_users
from tonnage.memory.thumb import worked_example
from tonnage.memory.weights import MARLIN, ExpertPadding, WeightRules, checkpoint_bytes, rank_weights, with_precision
from tonnage.settings import EngineSettings, Parallelism
from tonnage.units import GIB, KIB, MIB, parse_bytes

GB = 10**9
ONE = Parallelism()
L4_CUDA = parse_bytes("22.03 GiB")
H100_CUDA = parse_bytes("79.19 GiB")
H200_CUDA = parse_bytes("139.80 GiB")

DENSE_64 = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip
"""The second text's model: 64 layers, 8 KV heads, head_dim 128."""


@cache
def shape(name: str) -> ModelShape:
    """Return a model's shape, or the 64-layer model of the published text."""
    return read_model(DENSE_64) if name == "dense-64" else find_model(name).shape


def cost(name: str, cache: str = "bfloat16", tp: int = 1) -> ContextCost:
    """Return the ideal cost of context on one rank."""
    return context_cost(shape(name), cache=cache, tp=tp)


@pytest.mark.parametrize(
    ("name", "cache", "expected"),
    [
        pytest.param("qwen3.5-4b", "fp8", 16 * KIB, id="qwen3.5-4b-fp8"),
        pytest.param("qwen3.5-4b", "bfloat16", 32 * KIB, id="qwen3.5-4b-bf16"),
        pytest.param("qwen3.5-9b", "fp8", 16 * KIB, id="qwen3.5-9b-fp8"),
        pytest.param("qwen3.5-9b", "bfloat16", 32 * KIB, id="qwen3.5-9b-bf16"),
        pytest.param("qwen3.6-35b-a3b", "bfloat16", 20 * KIB, id="qwen3.6-35b-a3b-bf16"),
        pytest.param("qwen3.6-27b", "bfloat16", 64 * KIB, id="qwen3.6-27b-bf16"),
        pytest.param("dense-64", "float16", 262_144, id="64-layers-8-heads-128-fp16"),
        pytest.param("huggyllama/llama-13b", "float16", 800 * KIB, id="llama-13b-multi-head-fp16"),
        pytest.param("qwen3-32b", "bfloat16", 256 * KIB, id="qwen3-32b-head-dim-is-128"),
        pytest.param("deepseek-v3", "bfloat16", 61 * 1152, id="deepseek-v3-one-latent-a-layer"),
    ],
)
def test_what_one_token_adds(name: str, cache: str, expected: int) -> None:
    """mission.md section 1, the table; KV heads and full-attention layers only, never every layer."""
    assert cost(name, cache).growth(10**6) == expected


@pytest.mark.parametrize(
    ("name", "state", "conv_at_least", "conv_at_most"),
    [
        pytest.param("qwen3.5-4b", 48, 1, 4, id="qwen3.5-4b"),
        pytest.param("qwen3.5-9b", 48, 1, 4, id="qwen3.5-9b"),
        pytest.param("qwen3.6-35b-a3b", 60, 1, 4, id="qwen3.6-35b-a3b"),
        pytest.param("qwen3.6-27b", 144, 1, 4, id="qwen3.6-27b"),
        pytest.param("dense-64", 0, 0, 0, id="no-state"),
    ],
)
def test_the_fixed_state_of_a_sequence_in_mib(name: str, state: int, conv_at_least: int, conv_at_most: int) -> None:
    """mission.md section 1: FP32 as the configs declare, plus 1 to 4 MiB of convolution state."""
    fixed = cost(name)
    assert fixed.state_bytes - fixed.conv_bytes == state * MIB
    assert conv_at_least * MIB <= fixed.conv_bytes <= conv_at_most * MIB


@pytest.mark.parametrize(
    ("name", "mib"), [("qwen3.5-4b", 1.12), ("qwen3.5-9b", 1.12), ("qwen3.6-35b-a3b", 1.41), ("qwen3.6-27b", 2.81)], ids=lambda v: str(v)
)
def test_the_convolution_state_has_one_column_less_than_its_kernel(name: str, mib: float) -> None:
    """The catalogue's README, "conv state MiB BF16 (k-1)"."""
    assert cost(name).conv_bytes / MIB == pytest.approx(mib, abs=0.006)


@pytest.mark.parametrize(
    ("name", "cache", "tokens", "state", "expected", "tolerance"),
    [
        pytest.param("qwen3.5-4b", "fp8", 1_000, False, 15.6 * MIB, 0.05 * MIB, id="qwen3.5-4b-1k-15.6-mib"),
        pytest.param("qwen3.5-4b", "fp8", 16_000, False, 250 * MIB, 0, id="qwen3.5-4b-16k-250-mib"),
        pytest.param("qwen3.5-4b", "fp8", 24_000, False, 375 * MIB, 0, id="qwen3.5-4b-24k-375-mib"),
        pytest.param("huggyllama/llama-13b", "float16", 2_048, True, 1.68 * GB, 0.005 * GB, id="llama-13b-2048-1.68-gb"),
        pytest.param("dense-64", "float16", 32_000, True, 8 * GIB, 0.2 * GIB, id="64-layers-32k-about-8-gib"),
        pytest.param("dense-64", "float16", 32_768, True, 8 * GIB, 0, id="64-layers-32-ki-8-gib"),
        pytest.param("qwen3.6-35b-a3b", "bfloat16", 16_000, True, 0.364 * GIB, 0.0012 * GIB, id="qwen3.6-35b-a3b-16k-0.364-gib"),
        pytest.param("gpt-oss-20b", "bfloat16", 16_000, True, 0.369 * GIB, 0.0005 * GIB, id="gpt-oss-20b-16k-0.369-gib"),
        pytest.param("gemma-3-27b-it", "bfloat16", 16_000, True, 1.627 * GIB, 0.0005 * GIB, id="gemma-3-27b-16k-1.627-gib"),
        pytest.param("deepseek-v3", "bfloat16", 16_000, True, 1.047 * GIB, 0.0005 * GIB, id="deepseek-v3-16k-1.047-gib"),
        pytest.param("qwen3-32b", "bfloat16", 16_000, True, 3.906 * GIB, 0.0005 * GIB, id="qwen3-32b-16k-3.906-gib"),
    ],
)
def test_what_one_sequence_takes(name: str, cache: str, tokens: int, state: bool, expected: float, tolerance: float) -> None:
    """mission.md section 1 and the "right" column of peers.md; 0.364 there is without the convolution state."""
    assert cost(name, cache).sequence_bytes(tokens, state=state) == pytest.approx(expected, abs=tolerance, rel=0)


def test_sixteen_users_at_24k_take_6_6_gib_with_their_state() -> None:
    """mission.md section 1: 16 x (375 + 48) MiB; the convolution state adds 18 MiB in all."""
    of_one = cost("qwen3.5-4b", "fp8")
    assert 16 * (of_one.sequence_bytes(24_000) - of_one.conv_bytes) / GIB == pytest.approx(6.61, abs=0.005)
    assert 16 * of_one.sequence_bytes(24_000) / GIB == pytest.approx(6.6, abs=0.05)


def test_sixty_four_sequences_of_8k_take_128_gib_four_times_the_weights() -> None:
    """mission.md section 1 and peers.md: 64 x 8,192 tokens of the 64-layer model; its FP8 weights are 32 GiB."""
    taken = 64 * cost("dense-64", "float16").sequence_bytes(8_192)
    assert taken == 128 * GIB
    assert taken / checkpoint_bytes(shape("Qwen/Qwen3-32B-FP8")) == pytest.approx(4, abs=0.05)


def test_a_wider_cache_is_counted_where_every_layer_is_counted_four_times_too_much() -> None:
    """mission.md section 1: counting every layer overstates Qwen3.5 fourfold; peers.md: 65,536 instead of 16,384."""
    full = [cache for cache in shape("qwen3.5-4b").caches if isinstance(cache, KVCache)]
    assert (len(full), len(shape("qwen3.5-4b").layers)) == (8, 32)
    assert cost("qwen3.5-4b", "fp8").per_token * 32 // 8 == 65_536


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_a_latent_cache_is_whole_on_every_rank(tp: int) -> None:
    """peers.md: DeepSeek-V3, 1.047 GiB per rank at any TP, not divided by 8."""
    assert cost("deepseek-v3", tp=tp).sequence_bytes(16_000) / GIB == pytest.approx(1.047, abs=0.0005)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        pytest.param("qwen3.5-4b", 8.68, id="qwen3.5-4b-bf16"),
        pytest.param("qwen3.5-9b", 17.98, id="qwen3.5-9b-bf16"),
        pytest.param("qwen3.6-35b-a3b", 66.97, id="qwen3.6-35b-a3b-bf16"),
        pytest.param("qwen3.6-27b", 51.75, id="qwen3.6-27b-bf16"),
        pytest.param("Qwen/Qwen3.6-27B-FP8", 28.75, id="qwen3.6-27b-fp8"),
        pytest.param("huggyllama/llama-13b", 24.24, id="llama-13b-fp16"),
        pytest.param("qwen3-32b", 61.02, id="qwen3-32b-bf16"),
        pytest.param("gpt-oss-20b", 12.82, id="gpt-oss-20b-on-disk"),
        pytest.param("deepseek-v3", 641.3, id="deepseek-v3-its-own-fp8"),
    ],
)
def test_what_a_checkpoint_weighs(name: str, gib: float) -> None:
    """peers.md and the catalogue's README; DeepSeek-V3's published 641.3 holds 0.015 GiB beside its tensors."""
    assert checkpoint_bytes(shape(name)) / GIB == pytest.approx(gib, abs=0.0155)


def test_an_active_count_is_no_weight() -> None:
    """mission.md section 1: Qwen3.6-35B-A3B is 37.45 GB in FP8 and 72 GB in BF16, and fits no 24 GB card, whatever "A3B" says."""
    published = checkpoint_bytes(shape("Qwen/Qwen3.6-35B-A3B-FP8"))
    assert published / GB == pytest.approx(37.45, abs=0.011)
    assert checkpoint_bytes(shape("qwen3.6-35b-a3b")) / GB == pytest.approx(71.9, abs=0.05)
    assert rank_weights(shape("Qwen/Qwen3.6-35B-A3B-FP8"), ONE).total > 24 * GB
    assert shape("qwen3.6-35b-a3b").params_active < 4e9


def test_qwen3_5_4b_has_a_tower_and_4_66_billion_parameters() -> None:
    """mission.md section 1: never from a round name."""
    assert shape("qwen3.5-4b").params_total == 4_659_865_088
    assert sum(tensor.elements for tensor in shape("qwen3.5-4b").vision) > 300_000_000


def test_llama_8b_in_awq_weighs_5_33_gib() -> None:
    """peers.md: others say 3.7 GiB, from "2.0B parameters" of packed integers."""
    assert checkpoint_bytes(with_precision(shape("llama-3.1-8b"), "awq")) / GIB == pytest.approx(5.33, abs=0.006)


@pytest.mark.parametrize(
    ("name", "gib"), [pytest.param("qwen3.5-4b", 5.26, id="qwen3.5-4b"), pytest.param("qwen3.5-9b", 11.35, id="qwen3.5-9b")]
)
def test_fp8_by_the_rule_of_the_familys_own_checkpoints(name: str, gib: float) -> None:
    """The catalogue's README: embeddings, tower and gates stay in BF16, so that 4B is 5.26 and not 4.34 GiB."""
    assert checkpoint_bytes(with_precision(shape(name), "fp8")) / GIB == pytest.approx(gib, abs=0.006)


def test_gpt_oss_20b_loads_as_its_kernel_pads_it() -> None:
    """peers.md: 13.64 GiB loaded by vLLM 0.19, Marlin's padding; vllm-memory.md: 12.85 unpadded, 13.70 padded."""
    padded = rank_weights(shape("gpt-oss-20b"), ONE, rules=WeightRules(MARLIN)).total / GIB
    bare = rank_weights(shape("gpt-oss-20b"), ONE, rules=WeightRules(ExpertPadding(64, 1))).total / GIB
    assert (round(bare, 2), round(padded, 2)) == (12.85, 13.70)
    assert padded == pytest.approx(13.64, rel=0.005)


def test_qwen3_32b_does_not_fit_two_l4() -> None:
    """peers.md: 61 GiB emitted as a deployment on 2 x L4."""
    assert rank_weights(shape("qwen3-32b"), Parallelism(tp=2)).total > L4_CUDA
    assert rank_weights(shape("qwen3-32b"), ONE).total / GIB == pytest.approx(61, abs=0.1)


def test_deepseek_v3_does_not_fit_eight_h100() -> None:
    """peers.md: "78 GB, should fit in 80" is 79.3 GiB on each of eight ranks."""
    held = rank_weights(shape("deepseek-v3"), Parallelism(tp=8)).total
    assert held / GIB == pytest.approx(79.3, abs=0.05)
    assert held > H100_CUDA * 0.92


@pytest.mark.parametrize(("utilization", "users"), [pytest.param(0.90, {44}, id="0.90"), pytest.param(0.92, {46, 47}, id="0.92")])
def test_users_of_deepseek_v3_on_eight_h200_before_overhead(utilization: float, users: set[int]) -> None:
    """peers.md: 44 users at 16k, 46 or 47 at 0.92 (an eighth of the checkpoint, or a rank's weights); others say 344 and 353."""
    of_one = cost("deepseek-v3", tp=8)
    weights = (rank_weights(shape("deepseek-v3"), Parallelism(tp=8)).total, checkpoint_bytes(shape("deepseek-v3")) // 8)
    counts = [ideal_users(int(H200_CUDA * utilization) - held, of_one, 16_000) for held in weights]
    assert counts[0] in users
    assert min(users) - 1 <= counts[1] <= counts[0]


def test_the_worked_example_is_47_users_and_18() -> None:
    """mission.md section 1: Qwen3.5-4B on an L4 at 16,000 tokens, FP8 and BF16, from its own inputs."""
    four = shape("qwen3.5-4b")
    assert worked_example(24 * GB, four, cost("qwen3.5-4b", "fp8"), 16_000, fp8=True, checkpoint=0) == 47
    assert worked_example(24 * GB, four, cost("qwen3.5-4b"), 16_000, fp8=False, checkpoint=checkpoint_bytes(four)) == 18


def test_the_worked_examples_lines() -> None:
    """mission.md section 1: 22.35 x 0.90 - 4.9 - 1.5 = 13.7 GiB; 250 + 48 MiB; BF16 8.7 and 0.54 a user; 46.95 with convolutions."""
    of_one, wide = cost("qwen3.5-4b", "fp8"), cost("qwen3.5-4b")
    pool = (22.35 * 0.90 - 4.9 - 1.5) * GIB
    assert pool / GIB == pytest.approx(13.7, abs=0.02)
    assert of_one.sequence_bytes(16_000) - of_one.conv_bytes == (250 + 48) * MIB
    assert pool // (of_one.sequence_bytes(16_000) - of_one.conv_bytes) == 47
    assert pool / of_one.sequence_bytes(16_000) == pytest.approx(46.95, abs=0.01)
    assert (wide.sequence_bytes(16_000) - wide.conv_bytes) / GIB == pytest.approx(0.54, abs=0.006)
    assert checkpoint_bytes(shape("qwen3.5-4b")) / GIB == pytest.approx(8.7, abs=0.03)
    embedding = 248_320 * 2560
    assert (shape("qwen3.5-4b").params_total + embedding) / GIB == pytest.approx(4.93, abs=0.005)


@pytest.mark.parametrize(
    ("caching", "admitted"), [pytest.param(False, 44, id="without-prefix-caching"), pytest.param(True, 38, id="with-prefix-caching")]
)
def test_the_engine_admits_fewer_than_the_worked_example(caching: bool, admitted: int) -> None:
    """mission.md section 1: 47 ideal, about 44 admitted, or 38 with prefix caching, in the example's pool of 13.7 GiB."""
    rules, host = rules_for("vllm", (0, 33)), Host(L4_CUDA, (8, 9), "NVIDIA L4")
    asked = EngineSettings(kv_cache_dtype="fp8", max_model_len=16_000, enable_prefix_caching=caching)
    made = allocate(shape("qwen3.5-4b"), resolved(asked, shape("qwen3.5-4b"), host, rules), rules, (8, 9), int(13.7 * GIB))
    assert int(made.concurrency(16_000)) == admitted


def test_a_published_count_for_qwen3_5_9b_does_not_follow_from_its_formula() -> None:
    """mission.md section 1: "about 3" users in BF16 and 10 in FP8 on an L4 are to be computed, not repeated: 1 and 29."""
    nine = shape("qwen3.5-9b")
    assert worked_example(24 * GB, nine, cost("qwen3.5-9b", "fp8"), 16_000, fp8=True, checkpoint=0) == 29
    assert worked_example(24 * GB, nine, cost("qwen3.5-9b"), 16_000, fp8=False, checkpoint=checkpoint_bytes(nine)) == 1


@pytest.mark.parametrize(("tokens", "blocks"), [(2_000, 125), (16_000, 1_000), (1, 1), (16, 1), (17, 2)], ids=str)
def test_blocks_of_sixteen_tokens(tokens: int, blocks: int) -> None:
    """mission.md section 4: 2,000 tokens take 125 blocks, 16,000 take 1,000."""
    rules, host = rules_for("vllm", (0, 33)), Host(H100_CUDA, (9, 0), "NVIDIA H100")
    settings = resolved(EngineSettings(max_model_len=32_768), shape("qwen3-32b"), host, rules)
    assert allocate(shape("qwen3-32b"), settings, rules, (9, 0), 20 * GIB).sequence_blocks(tokens) == blocks


@pytest.mark.parametrize(
    ("share", "least", "most"), [pytest.param(0.5, 0.49, 0.51, id="half"), pytest.param(0.9, 0.88, 0.91, id="nine-tenths")]
)
def test_a_shared_prefix_is_stored_once(share: float, least: float, most: float) -> None:
    """mission.md section 1: a stable shared prefix cuts per-user cache by 50 to 90 %."""
    of_one, tokens = cost("qwen3-32b"), 16_000
    pool = 1_000 * of_one.sequence_bytes(tokens)
    alone, sharing = ideal_users(pool, of_one, tokens), ideal_users(pool, of_one, tokens, int(tokens * share))
    assert alone == 1_000
    assert least <= 1 - alone / sharing <= most


@pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param("qwen3.5-4b", 4_659_865_088, id="qwen3.5-4b"),
        pytest.param("qwen3.5-9b", 9_653_104_368, id="qwen3.5-9b"),
        pytest.param("qwen3.6-35b-a3b", 35_951_822_704, id="qwen3.6-35b-a3b"),
        pytest.param("qwen3.6-27b", 27_781_427_952, id="qwen3.6-27b"),
        pytest.param("huggyllama/llama-13b", 13_015_864_320, id="llama-13b"),
        pytest.param("qwen3-32b", 32_762_123_264, id="qwen3-32b"),
    ],
)
def test_parameters_of_the_published_examples(name: str, params: int) -> None:
    """The catalogue's README, "Checks against the published examples"."""
    assert shape(name).params_total == params
