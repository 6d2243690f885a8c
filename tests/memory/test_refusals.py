"""What an engine refuses to start with: its reason in our words, the nearest legal value, and nothing that it accepts."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.facts.catalog import all_names, find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.shape import ModelShape
from tonnage.memory.allocator import allocate
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.refusals import Refusal, does_not_hold_one, legal_tp, longest_that_fits, refusals
from tonnage.settings import EngineSettings, LoRA, Parallelism
from tonnage.units import GIB

NAMES = [name for name in all_names() if name != "mistralai/Mistral-Large-3-675B-Instruct-2512"]
H100, L40S, A100, A10, P40 = (9, 0), (8, 9), (8, 0), (8, 6), (6, 1)


@cache
def shape(name: str) -> ModelShape:
    """Return the catalogue's shape of a model."""
    return find_model(name).shape


def refused(model: str, capability: tuple[int, int] | None = H100, minor: int = 33, **asked: Any) -> tuple[Refusal, ...]:
    """Return what vLLM 0.minor refuses; `tp`, `pp`, `dp`, `dcp` and `expert` go into the parallelism."""
    parallel = Parallelism(**{key: asked.pop(key) for key in ("tp", "pp", "dp", "dcp", "expert") if key in asked})
    settings = EngineSettings(release=(0, minor), parallel=parallel, **asked)
    return refusals(shape(model), settings, capability, rules_for("vllm", (0, minor)))


@pytest.mark.parametrize(
    ("model", "capability", "asked", "id", "said", "remedy"),
    [
        pytest.param("qwen3.5-27b", H100, {"tp": 16}, "heads-not-divisible", "24 attention heads", "4 or 8", id="row-qwen3.5-27b-tp16"),
        pytest.param("gemma-3-4b-it", H100, {"tp": 16}, "heads-not-divisible", "8 attention heads", "4 or 8", id="row-gemma-3-4b-tp16"),
        pytest.param("phi-4", H100, {"tp": 16}, "heads-not-divisible", "40 attention heads", "use ", id="row-phi-4-tp16"),
        pytest.param("granite-4.0-h-tiny", H100, {"tp": 8}, "heads-not-divisible", "12 attention heads", "use ", id="row-granite-tiny-tp8"),
        pytest.param("phi-4", H100, {"tp": 4}, "kv-heads-not-divisible", "10 KV heads", "use ", id="phi-4-tp4"),
        pytest.param(
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            H100,
            {"tp": 16},
            "state-groups-not-divisible",
            "8 state groups",
            "8",
            id="row-nemotron-3-nano-tp16",
        ),
        pytest.param(
            "nvidia/Nemotron-H-56B-Base-8K",
            H100,
            {"tp": 16},
            "state-groups-not-divisible",
            "8 state groups",
            "8",
            id="row-nemotron-h-tp16",
        ),
        pytest.param(
            "Qwen/Qwen3-30B-A3B-FP8", H100, {"tp": 16}, "quantisation-block", "width of 48", "expert", id="row-qwen3-30b-fp8-tp16"
        ),
        pytest.param(
            "Qwen/Qwen3-30B-A3B-FP8", A100, {"tp": 4}, "fp8-experts-before-8.9", "it is 192", "FP8", id="row-qwen3-30b-fp8-ampere"
        ),
        pytest.param("deepseek-v3.2", L40S, {}, "no-attention-backend", "capability 8.9", "Hopper", id="row-sparse-on-ada"),
        pytest.param("deepseek-v3.2", A10, {"tp": 8}, "no-attention-backend", "capability 8.6", "Hopper", id="row-sparse-on-ampere"),
        pytest.param("deepseek-v3", H100, {"tp": 8, "dcp": 3}, "dcp-not-divisible", "size 3", "divisor of 8", id="dcp-not-a-divisor"),
        pytest.param("qwen3-32b", H100, {"tp": 8, "dcp": 2}, "dcp-above-copies", "makes 1", "lower", id="dcp-without-copies"),
        pytest.param("qwen3-8b", H100, {"max_model_len": 10**6}, "longer-than-the-model", "1,000,000", "40960", id="too-long"),
        pytest.param("qwen3-8b", P40, {}, "capability-too-low", "capability 6.1", "Volta", id="pascal"),
        pytest.param("qwen3-8b", H100, {"lora": LoRA(2, 100)}, "lora-rank", "rank 100", "use 128", id="lora-rank"),
        pytest.param("qwen3-8b", H100, {"block_size": 17}, "block-size", "17 tokens", "16", id="block-size"),
        pytest.param("qwen3-8b", H100, {"tp": 2, "expert": True}, "no-experts", "no experts", "--ep", id="no-experts"),
        pytest.param("qwen3-8b", H100, {"kv_cache_dtype": "fp3"}, "cache-dtype-unknown", "'fp3'", "fp8", id="cache-dtype"),
    ],
)
def test_each_refusal_has_its_reason_and_the_way_out(
    model: str, capability: tuple[int, int], asked: dict[str, Any], id: str, said: str, remedy: str
) -> None:
    """Ids that begin with "row" are refused rows of ../shared/data/allocator; the others are the engine's checks as released."""
    first = refused(model, capability, **asked)[0]
    assert first.id == id
    assert said in first.reason
    assert remedy in first.remedy


@pytest.mark.parametrize(
    ("model", "asked", "id"),
    [
        pytest.param("Qwen/Qwen3.6-35B-A3B-FP8", {"tp": 8}, "quantisation-block", id="a-shared-expert-of-64-in-blocks-of-128"),
        pytest.param("Qwen/Qwen3.6-35B-A3B-FP8", {"tp": 8, "expert": True}, "quantisation-block", id="which-is-cut-with-ep-too"),
        pytest.param("deepseek-ai/DeepSeek-V4-Pro", {"tp": 16, "expert": True}, "quantisation-block", id="deepseek-v4-pro-tp16"),
        pytest.param("Qwen/Qwen3-32B-FP8", {"tp": 16}, "quantisation-block", id="a-dense-width-of-1600-in-blocks-of-128"),
        pytest.param("Qwen/Qwen3-30B-A3B-FP8", {"dp": 16}, "quantisation-block", id="experts-cut-over-data-parallel-ranks"),
        pytest.param("microsoft/Phi-3-medium-128k-instruct", {"tp": 5}, "vocabulary-not-divisible", id="a-vocabulary-of-32064-over-5"),
        pytest.param("Qwen/Qwen2.5-0.5B-Instruct", {"tp": 14}, "mlp-not-divisible", id="a-width-of-4864-over-14"),
        pytest.param("Qwen/Qwen3-32B-AWQ", {"tp": 16}, "quantisation-group", id="int4-groups-of-128-in-a-width-of-1600"),
        pytest.param(
            "qwen3-8b", {"max_num_seqs": 512, "max_num_batched_tokens": 256}, "batch-below-sequences", id="a-batch-below-the-sequences"
        ),
    ],
)
def test_what_else_the_engine_refuses(model: str, asked: dict[str, Any], id: str) -> None:
    """vLLM's `divide` of vocabulary and columns, `validate_fp8_block_shape`, Marlin's groups, SchedulerConfig: as released.

    "Weight input_size_per_partition = 64 is not divisible by weight quantization block_k = 128" is what people report of
    Qwen3-Next and Qwen3.6-35B-A3B in FP8 at TP 8, and 192 of DeepSeek-V4-Pro at TP 16.
    """
    assert any(found.id == id for found in refused(model, **asked))


@pytest.mark.parametrize(
    ("model", "capability", "asked"),
    [
        pytest.param("qwen3-8b", H100, {}, id="plain"),
        pytest.param("qwen3-32b", H100, {"tp": 16}, id="beyond-the-kv-heads"),
        pytest.param("deepseek-v3", A100, {"tp": 16}, id="latent-on-ampere"),
        pytest.param("deepseek-v3", H100, {"tp": 8, "dcp": 8}, id="dcp-of-a-latent"),
        pytest.param("qwen3-32b", H100, {"tp": 16, "dcp": 2}, id="dcp-of-two-copies"),
        pytest.param("deepseek-v3.2", H100, {"kv_cache_dtype": "fp8"}, id="sparse-on-hopper"),
        pytest.param("deepseek-v3.2", (10, 0), {}, id="sparse-on-blackwell"),
        pytest.param("Qwen/Qwen3-30B-A3B-FP8", H100, {"tp": 8}, id="row-fp8-experts-of-96"),
        pytest.param("Qwen/Qwen3-30B-A3B-FP8", H100, {"tp": 16, "expert": True}, id="experts-dealt-whole"),
        pytest.param("granite-4.0-h-small", H100, {"tp": 8}, id="one-state-group-is-replicated"),
        pytest.param("qwen3-8b", None, {}, id="a-card-without-a-capability"),
        pytest.param("qwen3-8b", H100, {"lora": LoRA(2, 64)}, id="lora"),
        pytest.param("qwen3-8b", H100, {"kv_cache_dtype": "bf16"}, id="bf16-by-its-short-name"),
    ],
)
def test_what_the_engine_accepts_is_not_refused(model: str, capability: tuple[int, int] | None, asked: dict[str, Any]) -> None:
    """A refusal that is not the engine's would send people away from what works."""
    assert refused(model, capability, **asked) == ()


@pytest.mark.parametrize(
    ("dtype", "minor", "known"),
    [
        pytest.param("int4_per_token_head", 24, False, id="int4-before"),
        pytest.param("int4_per_token_head", 25, True, id="int4-since-0.25"),
        pytest.param("nvfp4", 19, False, id="nvfp4-before"),
        pytest.param("nvfp4", 20, True, id="nvfp4-since-0.20"),
        pytest.param("fp8", 19, True, id="fp8-always"),
    ],
)
def test_a_cache_dtype_is_refused_before_its_release(dtype: str, minor: int, known: bool) -> None:
    """vllm-memory.md section 3, the timeline."""
    assert (refused("qwen3-8b", minor=minor, kv_cache_dtype=dtype) == ()) is known


@pytest.mark.parametrize(
    ("model", "legal"),
    [
        pytest.param("qwen3.5-27b", [1, 2, 4, 8], id="24-heads-and-16-key-heads"),
        pytest.param("qwen3-32b", [1, 2, 4, 8, 16, 32, 64], id="64-heads-8-kv"),
        pytest.param("granite-4.0-h-small", [1, 2, 4, 8, 16, 32], id="32-heads-one-group"),
        pytest.param("phi-4", [1, 2], id="40-heads-10-kv-and-a-vocabulary-without-a-5"),
    ],
)
def test_legal_tensor_parallel_sizes(model: str, legal: list[int]) -> None:
    """By hand from heads, KV heads, state groups, and (for phi-4: 100,352 has no factor of 5) the vocabulary."""
    assert legal_tp(shape(model)) == legal


@given(st.sampled_from(NAMES), st.integers(1, 64))
def test_a_size_is_legal_where_nothing_about_parallelism_is_refused(name: str, tp: int) -> None:
    """The remedy never names a size that is refused in turn."""
    about = {"heads-not-divisible", "kv-heads-not-divisible", "state-groups-not-divisible", "state-heads-not-divisible"}
    found = [entry for entry in refused(name, None, tp=tp) if entry.id in about]
    assert (tp in legal_tp(shape(name))) == (not found)
    assert all(entry.remedy for entry in found)


@given(st.sampled_from(NAMES), st.sampled_from([None, P40, (7, 5), A100, A10, L40S, H100, (10, 0), (12, 0)]), st.integers(9, 35))
def test_every_refusal_has_an_id_a_reason_and_a_remedy(name: str, capability: tuple[int, int] | None, minor: int) -> None:
    """Over the catalogue, cards and releases; a reason is a sentence for a person, an id a word for a program."""
    for found in refused(name, capability, minor, tp=16, dcp=2, max_model_len=10**7, kv_cache_dtype="fp8"):
        assert found.id == found.id.lower().replace(" ", "-")
        assert found.reason
        assert found.remedy


def held(model: str, pool_gib: float, length: int, minor: int) -> tuple[Refusal | None, int, int]:
    """Return (refusal, longest that fits, blocks) of a pool on an H100."""
    rules, host = rules_for("vllm", (0, minor)), Host(85_899_345_920, H100, "NVIDIA H100")
    settings = resolved(EngineSettings(release=(0, minor), max_model_len=length), shape(model), host, rules)
    made = allocate(shape(model), settings, rules, H100, int(pool_gib * GIB))
    return does_not_hold_one(made, int(pool_gib * GIB)), longest_that_fits(made), made.num_blocks


@pytest.mark.parametrize(
    ("minor", "spare"), [pytest.param(28, 0, id="whole-pool"), pytest.param(29, 1, id="null-block-reserved-since-0.29")]
)
def test_one_request_of_the_length_limit_must_fit(minor: int, spare: int) -> None:
    """vllm-memory.md section 2: the start-up check, and the estimated maximum length; since 0.29 the null block is kept back."""
    refusal, longest, blocks = held("qwen3-32b", 5, 32_768, minor)
    assert refusal is not None
    assert refusal.id == "max-len-above-pool"
    assert "one request of max-model-len 32,768 needs 8.00 GiB of cache; the pool has 5.00" in refusal.reason
    assert blocks == 1_280
    assert longest == (1_280 - spare) * 16
    assert refusal.remedy == f"use --max-model-len {longest}"


def test_a_pool_without_room_for_one_token_says_so() -> None:
    """There is no length to name."""
    refusal, longest, _ = held("qwen3-32b", 0.001, 32_768, 33)
    assert refusal is not None
    assert longest == 0
    assert "nothing fits" in refusal.remedy


def test_a_pool_that_holds_one_request_is_not_refused() -> None:
    """Nor is an encoder, which has no cache."""
    assert held("qwen3-32b", 20, 32_768, 33)[0] is None
    assert held("BAAI/bge-m3", 0, 8_192, 33)[0] is None


def test_an_architecture_that_a_release_dropped_is_refused_with_the_last_that_had_it() -> None:
    """Llama 3.2 Vision's encoder-decoder left with V0, after 0.10."""
    model = next(name for name in NAMES if shape(name).architecture == "MllamaForConditionalGeneration")
    (found,) = refused(model, minor=33)
    assert (found.id, found.remedy) == ("architecture-dropped", "use --engine vllm:0.10")
    assert refused(model, minor=10) == ()


def test_a_cache_that_a_sparse_checkpoint_declares_has_no_backend() -> None:
    """A refused row: DeepSeek-V3.2 as NVFP4 asks for an fp8_e4m3 cache; asked for by name it starts."""
    quantisation = msgspec.structs.replace(shape("deepseek-v3.2").quantisation, kv="fp8")
    declaring = msgspec.structs.replace(shape("deepseek-v3.2"), quantisation=quantisation)
    rules = rules_for("vllm", (0, 33))
    assert [found.id for found in refusals(declaring, EngineSettings(), H100, rules)] == ["no-attention-backend"]
    assert refusals(declaring, EngineSettings(kv_cache_dtype="fp8"), H100, rules) == ()
