"""What an engine chooses where the settings are silent, by card and release; and limits that cannot be."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.shape import ModelShape
from tonnage.memory.defaults import Host, batch_limits, resolved, tokens_in_flight
from tonnage.settings import EngineSettings, Parallelism
from tonnage.units import GIB, parse_bytes

L4 = Host(parse_bytes("22.03 GiB"), (8, 9), "NVIDIA L4")
L40S = Host(parse_bytes("44.42 GiB"), (8, 9), "NVIDIA L40S")
A100 = Host(parse_bytes("79.32 GiB"), (8, 0), "NVIDIA A100-SXM4-80GB")
H100 = Host(parse_bytes("79.19 GiB"), (9, 0), "NVIDIA H100 80GB HBM3")
H200 = Host(parse_bytes("139.8 GiB"), (9, 0), "NVIDIA H200")
B200 = Host(parse_bytes("178.4 GiB"), (10, 0), "NVIDIA B200")
GB10 = Host(parse_bytes("119.6 GiB"), (12, 1), "NVIDIA GB10")
MI300X = Host(parse_bytes("191.98 GiB"), None, "AMD Instinct MI300X")


@cache
def shape(name: str) -> ModelShape:
    """Return the catalogue's shape of a model."""
    return find_model(name).shape


def defaults(model: str = "qwen3-8b", host: Host = H100, minor: int = 33, **asked: Any) -> EngineSettings:
    """Return the settings of vLLM 0.minor with its defaults filled in."""
    return resolved(EngineSettings(release=(0, minor), **asked), shape(model), host, rules_for("vllm", (0, minor)))


@pytest.mark.parametrize(
    ("host", "minor", "sequences", "batch"),
    [
        pytest.param(L4, 33, 256, 2_048, id="l4"),
        pytest.param(L40S, 33, 256, 2_048, id="l40s"),
        pytest.param(A100, 33, 256, 2_048, id="an-a100-is-not-taken-for-a-large-card"),
        pytest.param(GB10, 33, 256, 2_048, id="nor-is-a-gb10"),
        pytest.param(H100, 33, 1_024, 8_192, id="h100"),
        pytest.param(H100, 19, 1_024, 8_192, id="h100-0.19"),
        pytest.param(H200, 33, 1_024, 8_192, id="h200"),
        pytest.param(B200, 27, 1_024, 8_192, id="b200-before-its-tier"),
        pytest.param(B200, 28, 1_024, 16_384, id="b200-from-0.28"),
        pytest.param(MI300X, 33, 1_024, 16_384, id="mi300x"),
    ],
)
def test_sequences_and_batch_by_card(host: Host, minor: int, sequences: int, batch: int) -> None:
    """vllm-memory.md section 8: 160 GiB and more, 70 GiB and more and no A100 (nor GB10), and the rest."""
    assert batch_limits(host, rules_for("vllm", (0, minor))) == (sequences, batch)


@pytest.mark.parametrize(("minor", "share"), [(9, 0.90), (19, 0.90), (20, 0.92), (33, 0.92)])
def test_utilization_by_release(minor: int, share: float) -> None:
    """vllm-memory.md section 1: 0.90 up to 0.19, 0.92 from 0.20."""
    assert defaults(minor=minor).gpu_memory_utilization == share
    assert defaults(minor=minor, gpu_memory_utilization=0.5).gpu_memory_utilization == 0.5


@pytest.mark.parametrize(
    ("model", "minor", "caching"),
    [
        pytest.param("qwen3-8b", 19, True, id="plain-always"),
        pytest.param("gpt-oss-20b", 27, True, id="windows-always"),
        pytest.param("qwen3.5-4b", 27, False, id="hybrid-off-up-to-0.27"),
        pytest.param("qwen3.5-4b", 28, True, id="hybrid-on-from-0.28"),
        pytest.param("granite-4.0-h-small", 28, True, id="mamba2-on-from-0.28"),
        pytest.param("BAAI/bge-m3", 33, False, id="an-encoder-has-no-cache"),
    ],
)
def test_prefix_caching_by_kind_and_release(model: str, minor: int, caching: bool) -> None:
    """vllm-memory.md section 5: opt-in for hybrids up to 0.27.1, on since 0.28."""
    assert defaults(model, minor=minor).enable_prefix_caching is caching
    for asked in (True, False):
        assert defaults(model, minor=minor, enable_prefix_caching=asked).enable_prefix_caching is asked


@pytest.mark.parametrize(
    ("minor", "asked", "batch"),
    [
        pytest.param(21, None, 2_048, id="before"),
        pytest.param(22, None, 2_496, id="since-0.22"),
        pytest.param(33, 2_048, 2_048, id="as-asked"),
    ],
)
def test_gemma_4_has_room_for_one_item_in_a_batch(minor: int, asked: int | None, batch: int) -> None:
    """vllm-memory.md section 8: Gemma-4-26B on an L40S has 2,496 batched tokens since 0.22."""
    got = defaults("google/gemma-4-26B-A4B-it", L40S, minor, max_num_batched_tokens=asked)
    assert got.max_num_batched_tokens == batch


def test_a_small_batch_caps_the_sequences() -> None:
    """vllm-memory.md section 8: max_num_seqs is capped to max_num_batched_tokens where it is not given."""
    assert defaults(max_num_batched_tokens=512).max_num_seqs == 512
    assert defaults(max_num_batched_tokens=512, max_num_seqs=64).max_num_seqs == 64


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (2, 2)])
def test_the_cpu_build_multiplies_by_its_ranks(tp: int, pp: int) -> None:
    """vllm-memory.md section 8: 2048 x world, 128 x world."""
    got = defaults(host=Host(64 * GIB, None, "CPU"), device="cpu", parallel=Parallelism(tp=tp, pp=pp))
    assert (got.max_num_seqs, got.max_num_batched_tokens) == (128 * tp * pp, 2_048 * tp * pp)


def test_the_length_limit_is_the_models_unless_it_is_given() -> None:
    """Qwen3-8B's config says 40,960."""
    assert defaults().max_model_len == 40_960
    assert defaults(max_model_len=8_000).max_model_len == 8_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("max_num_seqs", -1, id="sequences-negative"),
        pytest.param("max_model_len", -1, id="length-negative"),
        pytest.param("max_num_batched_tokens", -1, id="batch-negative"),
        pytest.param("max_num_seqs", 0, id="sequences-zero"),
        pytest.param("max_model_len", 0, id="length-zero"),
        pytest.param("max_num_batched_tokens", 0, id="batch-zero"),
    ],
)
def test_a_limit_below_one_is_refused_by_name(field: str, value: int) -> None:
    """Zero is no way to ask for the default."""
    asked: dict[str, Any] = {field: value}
    with pytest.raises(InputError, match=f"{field} is {value}"):
        defaults(**asked)


@pytest.mark.parametrize(
    ("minor", "pp", "asynchronous", "batches"),
    [
        pytest.param(19, 1, True, 1, id="one-batch-before-0.26"),
        pytest.param(25, 4, True, 1, id="whatever-the-stages"),
        pytest.param(26, 1, True, 2, id="two-with-async"),
        pytest.param(26, 1, False, 1, id="one-without"),
        pytest.param(33, 4, True, 5, id="stages-and-one"),
        pytest.param(33, 4, False, 4, id="stages"),
    ],
)
def test_batches_in_flight(minor: int, pp: int, asynchronous: bool, batches: int) -> None:
    """vllm-memory.md section 4: max_concurrent_batches = pp, and one more with async scheduling, from 0.26."""
    got = defaults(minor=minor, parallel=Parallelism(pp=pp), async_scheduling=asynchronous, max_num_batched_tokens=8_192)
    assert tokens_in_flight(got, rules_for("vllm", (0, minor))) == batches * 8_192


@given(st.integers(1, 300), st.integers(9, 40), st.sampled_from(["qwen3-8b", "qwen3.5-4b", "gpt-oss-20b", "BAAI/bge-m3"]))
def test_resolving_twice_changes_nothing(gib: int, minor: int, model: str) -> None:
    """What is filled in counts as asked for; nothing is left open."""
    host, rules = Host(gib * GIB, (9, 0), "NVIDIA H100"), rules_for("vllm", (0, minor))
    once = resolved(EngineSettings(release=(0, minor)), shape(model), host, rules)
    assert resolved(once, shape(model), host, rules) == once
    assert None not in (once.max_num_seqs, once.max_num_batched_tokens, once.max_model_len, once.enable_prefix_caching)
    assert (once.max_num_seqs or 0) <= (once.max_num_batched_tokens or 0)
