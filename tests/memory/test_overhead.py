"""The overhead law: published figures, the laws it must obey, and where it says that rows support it."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.facts.catalog import find_model
from tonnage.facts.overheads import overhead_constants
from tonnage.facts.shape import ModelShape
from tonnage.memory.activation import peak, second_runner
from tonnage.memory.overhead import EngineLoad, Term, captured, overhead
from tonnage.memory.weights import with_precision
from tonnage.settings import Parallelism
from tonnage.units import GIB, MIB

NAMES = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite-Chat", "google/gemma-3-27b-it",
    "openai/gpt-oss-20b", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.6-35B-A3B-FP8", "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "ibm-granite/granite-4.0-h-small", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "google/gemma-4-E2B-it", "microsoft/phi-4",
)  # fmt: skip


@cache
def shape_of(name: str) -> ModelShape:
    """Return a model of the catalogue."""
    return find_model(name).shape


def load_of(name: str, **changes: Any) -> EngineLoad:
    """Return a start on one H100 of vLLM 0.19 with its defaults, with some settings changed."""
    tp, pp = changes.pop("tp", 1), changes.pop("pp", 1)
    base = EngineLoad(shape_of(name), Parallelism(tp=tp, pp=pp), (0, 19), (9, 0), "nvlink", 1024, 8192)
    return msgspec.structs.replace(base, **changes)


def terms_of(load: EngineLoad) -> dict[str, Term]:
    """Return the terms by label."""
    return {term.label: term for term in overhead(load, overhead_constants())}


RELEASES = [(0, 9), (0, 16), (0, 17), (0, 19), (0, 22), (0, 24), (0, 26), (0, 29), (0, 33)]
CARDS = [((9, 0), "nvlink"), ((8, 9), "pcie"), ((8, 0), "nvlink"), ((12, 1), "ethernet"), (None, "infinity-fabric"), ((7, 5), "none")]

loads = st.builds(
    lambda name, release, card, seqs, batch, tp, eager, mtp, vision: EngineLoad(
        shape_of(name), Parallelism(tp=tp), release, card[0], card[1], seqs, batch, enforce_eager=eager, mtp=mtp, vision=vision
    ),
    st.sampled_from(NAMES),
    st.sampled_from(RELEASES),
    st.sampled_from(CARDS),
    st.integers(1, 2048),
    st.integers(1, 65_536),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
    st.integers(0, 3),
    st.booleans(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tp", "published"),
    [
        pytest.param("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 3.19, id="scout"),
        pytest.param("Qwen/Qwen3-30B-A3B", 1, 2.68, id="qwen3-30b-a3b"),
        pytest.param("codellama/CodeLlama-7b-Instruct-hf", 1, 0.77, id="codellama-7b"),
        pytest.param("ibm-granite/granite-3.3-2b-instruct", 1, 0.75, id="granite-2b"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 1.93, id="deepseek-v2-lite"),
        pytest.param("google/gemma-3-27b-it", 1, 3.99, id="gemma-3-27b"),
    ],
)
def test_activation_peaks_as_published(name: str, tp: int, published: float) -> None:
    """vLLM 0.19 on H100, 1,024 sequences and 8,192 tokens; the first four are figures without a row, so nothing was read off them."""
    assert terms_of(load_of(name, tp=tp))["activations"].size.best / GIB == pytest.approx(published, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        pytest.param({"tp": 1}, 0.25, id="one card"),
        pytest.param({"tp": 2}, 2.07, id="tp2"),
        pytest.param({"tp": 4}, 2.13, id="tp4"),
        pytest.param({"pp": 2}, 0.07, id="pipeline stage"),
        pytest.param({"tp": 1, "release": (0, 16)}, 0.13, id="before graphs were profiled"),
    ],
)
def test_context_and_collectives_as_published(changes: dict[str, Any], published: float) -> None:
    """Llama-3.1-8B on H100 SXM: what CUDA and NCCL keep outside of torch."""
    assert terms_of(load_of(NAMES[0], **changes))["context, comms"].size.best / GIB == pytest.approx(published, abs=0.01)


def test_the_peak_fell_two_and_a_half_times_with_the_sort() -> None:
    """Qwen3-14B, one setting, four releases: 5.64 GiB up to 0.16, 2.23 from 0.17 on."""
    found = [terms_of(load_of("Qwen/Qwen3-14B", release=(0, minor)))["activations"].size.best / GIB for minor in (15, 16, 17, 18)]
    assert found == pytest.approx([5.64, 5.64, 2.23, 2.23], abs=0.01)


def test_a_stage_without_the_sampler_runs_the_forward_pass_alone() -> None:
    """Llama-3.1-8B PP2 took 1.10 GiB on the first stage; the last one samples and holds the stage's inputs."""
    first = terms_of(load_of(NAMES[0], pp=2))["activations"]
    last = terms_of(load_of(NAMES[0], pp=2, stage=1))["activations"]
    assert first.size.best / GIB == pytest.approx(1.10, abs=0.03)
    assert last.size.best / GIB == pytest.approx(1.89 + 0.125, abs=0.03)
    assert "sampler" not in first.why and "sampler" in last.why


def test_a_copy_of_the_embedding_is_made_while_compiling_and_saved_with_a_warm_cache() -> None:
    """Qwen3-8B on an A10G of 0.30: the table of 1.16 GiB is most of the peak; eager mode and a warm cache do without."""
    load = load_of("Qwen/Qwen3-8B", release=(0, 30), capability=(8, 6), link="none", max_num_seqs=256, max_num_batched_tokens=2048)
    found = peak(load, overhead_constants())
    assert found.cause == "embedding" and found.bytes - found.warm > 0.9 * GIB
    assert peak(msgspec.structs.replace(load, enforce_eager=True), overhead_constants()).bytes < found.bytes / 3
    assert terms_of(load)["activations"].size.low <= found.warm


def test_the_why_holds_the_numbers() -> None:
    """A line can be checked by hand: what was multiplied stands in it."""
    terms = terms_of(load_of("Qwen/Qwen3-30B-A3B"))
    assert "sampler: 1,024 sequences x 151,936 vocabulary x 14 B" in terms["activations"].why
    assert "8,192 tokens x 8 experts x 4,096 elements" in terms["activations"].why
    assert "102 graphs up to 512 tokens x 48 layers" in terms["CUDA graphs"].why


@pytest.mark.parametrize(
    ("changes", "charged"),
    [
        pytest.param({"release": (0, 19)}, False, id="0.19: captured after the cache is sized"),
        pytest.param({"release": (0, 20)}, True, id="0.20: estimated and charged"),
        pytest.param({"release": (0, 26), "capability": None, "link": "none"}, False, id="rocm: not estimated yet"),
        pytest.param({"release": (0, 29), "capability": None, "link": "none"}, True, id="rocm: estimated"),
    ],
)
def test_graphs_are_charged_by_release(changes: dict[str, Any], charged: bool) -> None:
    """The estimate exists since 0.18 and is taken from the budget since 0.20; under ROCm since 0.29."""
    assert terms_of(load_of(NAMES[0], **changes))["CUDA graphs"].charged is charged


def test_eager_mode_captures_nothing() -> None:
    """No graphs, exactly."""
    assert terms_of(load_of(NAMES[0], enforce_eager=True))["CUDA graphs"].size.high == 0


@pytest.mark.parametrize(("seqs", "expected"), [(1024, (102, 512)), (256, (86, 512)), (128, (54, 256)), (4, (7, 8)), (1, (3, 2))])
def test_captured_sizes_as_the_engine_lists_them(seqs: int, expected: tuple[int, int]) -> None:
    """A log of 256 sequences prints 51 PIECEWISE and 35 FULL captures, 86 in all."""
    assert captured(load_of(NAMES[0], max_num_seqs=seqs), 512) == expected


def test_latent_attention_keeps_its_up_projection_twice() -> None:
    """DeepSeek-V2-Lite: 27 layers x 16 heads x 256 x 512 elements; the start held 0.15 GiB above its parameters."""
    term = terms_of(load_of("deepseek-ai/DeepSeek-V2-Lite-Chat"))["load copies"]
    assert term.size.best == 27 * 16 * 256 * 512 * 2
    assert term.size.low <= int(0.15 * GIB) <= term.size.high


def test_repacked_experts_count_at_their_peak() -> None:
    """gpt-oss-20b on H100 of 0.19: 12.85 GiB of parameters, 13.64 while one layer's experts are repacked."""
    term = terms_of(load_of("openai/gpt-oss-20b"))["load copies"]
    assert term.size.best / GIB == pytest.approx(13.64 - 12.85, abs=0.02)
    assert terms_of(load_of("openai/gpt-oss-20b", release=(0, 30)))["load copies"].size.best == 0


def test_slots_for_adapters_are_arithmetic() -> None:
    """Llama-3.1-8B, rank 16, one slot in 16 bits: 41,943,040 elements, as its adapters are published with (80 MiB)."""
    load = load_of(NAMES[0], lora_slots=1, lora_rank=16)
    term = terms_of(load)["LoRA"]
    assert term.size.best == 41_943_040 * 2 == 80 * MIB
    twice = terms_of(msgspec.structs.replace(load, lora_slots=2))["LoRA"]
    assert twice.size.best == 2 * term.size.best
    assert "LoRA" not in terms_of(load_of(NAMES[0]))


def test_adapters_on_experts_are_the_high_end() -> None:
    """Whether an engine makes slots for experts depends on its release: the low end leaves them out."""
    dense, experts = (terms_of(load_of(name, lora_slots=4, lora_rank=16))["LoRA"].size for name in (NAMES[0], NAMES[1]))
    assert dense.low > 0.85 * dense.best
    assert experts.low < 0.2 * experts.best


def test_int8_layers_hold_a_quantised_copy() -> None:
    """Mistral-Small-3.2 W8A8 at TP1: 2.18 GiB, the forward pass, where BF16 takes 2.03, the sampler."""
    name = "mistralai/Mistral-Small-3.2-24B-Instruct-2506"
    found = [peak(load_of(name, shape=shape), overhead_constants()) for shape in (with_precision(shape_of(name), "int8"), shape_of(name))]
    assert [entry.cause for entry in found] == ["forward", "sampler"]
    assert [entry.bytes / GIB for entry in found] == pytest.approx([2.18, 2.03], abs=0.02)


@pytest.mark.parametrize(
    ("name", "minor", "second"),
    [
        pytest.param("Qwen/Qwen3-8B", 19, False, id="0.19"),
        pytest.param("Qwen/Qwen3-8B", 22, True, id="0.22: the one listed"),
        pytest.param("Qwen/Qwen3-8B-FP8", 22, False, id="0.22: not quantised"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 24, True, id="0.24: listed"),
        pytest.param("microsoft/phi-4", 26, True, id="0.26: dense"),
        pytest.param("google/gemma-4-31B-it", 26, False, id="0.26: sees images"),
        pytest.param("Qwen/Qwen3-30B-A3B", 26, False, id="0.26: experts"),
        pytest.param("Qwen/Qwen3-30B-A3B", 29, True, id="0.29: all"),
    ],
)
def test_which_runner_profiles(name: str, minor: int, second: bool) -> None:
    """As the wheels decide; the second one's profile takes no top-k and top-p sample, so its peak is smaller."""
    assert second_runner(load_of(name, release=(0, minor)), overhead_constants()) is second


def test_a_model_that_only_embeds_does_not_sample() -> None:
    """bge-m3 has a vocabulary of 250,002 and no logits."""
    shape = shape_of("BAAI/bge-m3")
    assert shape.embeds_only
    assert "sampler" not in peak(load_of("BAAI/bge-m3"), overhead_constants()).why


@given(loads, st.integers(1, 2048), st.integers(1, 65_536))
def test_activation_does_not_grow_when_a_limit_falls(load: EngineLoad, seqs: int, batch: int) -> None:
    """Fewer sequences or a smaller batch budget never cost more."""
    c = overhead_constants()
    fewer = msgspec.structs.replace(load, max_num_seqs=min(seqs, load.max_num_seqs))
    smaller = msgspec.structs.replace(load, max_num_batched_tokens=min(batch, load.max_num_batched_tokens))
    assert peak(fewer, c).bytes <= peak(load, c).bytes
    assert peak(smaller, c).bytes <= peak(load, c).bytes


@given(loads)
def test_tensor_parallelism_never_raises_activation(load: EngineLoad) -> None:
    """Ranks share the blocks, the experts and the table; what they do not share stays as it is."""
    c = overhead_constants()
    ranks = [msgspec.structs.replace(load, parallel=Parallelism(tp=tp)) for tp in (1, 2, 4, 8)]
    found = [peak(entry, c).bytes for entry in ranks]
    assert found == sorted(found, reverse=True)


@given(loads, st.integers(1024, 1_048_576))
def test_overhead_does_not_depend_on_the_length(load: EngineLoad, longest: int) -> None:
    """There is no max_model_len to give; the model's own longest position changes nothing either."""
    longer = msgspec.structs.replace(load, shape=msgspec.structs.replace(load.shape, max_position=longest))
    assert overhead(longer, overhead_constants()) == overhead(load, overhead_constants())


@given(loads, st.integers(0, 8), st.sampled_from([0, 8, 64]))
def test_every_term_has_a_band_around_its_best(load: EngineLoad, slots: int, rank: int) -> None:
    """low <= best <= high, nothing below zero, and a reason on every line."""
    terms = overhead(msgspec.structs.replace(load, lora_slots=slots, lora_rank=rank), overhead_constants())
    assert [term.label for term in terms][:4] == ["context, comms", "activations", "CUDA graphs", "load copies"]
    for term in terms:
        assert 0 <= term.size.low <= term.size.best <= term.size.high
        assert term.why


@given(loads)
def test_what_is_called_measured_has_the_narrowest_band(load: EngineLoad) -> None:
    """A band is never narrower outside the envelope than its evidence inside."""
    c = overhead_constants()
    terms = terms_of(load)
    for label, evidence in (
        ("context, comms", c.context.evidence),
        ("activations", c.activation.evidence),
        ("load copies", c.load.evidence),
    ):
        size = terms[label].size
        assert size.high - size.best >= evidence.above
        if size.confidence == "measured" and label == "activations":
            assert size.high - size.best == evidence.above


GRID = [
    ("0.19, H100, defaults", {}, "measured", "measured", "measured"),
    ("0.16", {"release": (0, 16)}, "measured", "measured", "extrapolated"),
    ("0.12", {"release": (0, 12)}, "extrapolated", "extrapolated", "extrapolated"),
    ("0.33", {"release": (0, 33)}, "extrapolated", "extrapolated", "extrapolated"),
    ("256 sequences", {"max_num_seqs": 256}, "measured", "extrapolated", "measured"),
    ("64 sequences", {"max_num_seqs": 64}, "measured", "extrapolated", "extrapolated"),
    ("2,048 batched tokens", {"max_num_batched_tokens": 2048}, "measured", "extrapolated", "measured"),
    ("16,384 batched tokens", {"max_num_batched_tokens": 16_384}, "measured", "extrapolated", "measured"),
    ("A100", {"capability": (8, 0)}, "extrapolated", "extrapolated", "extrapolated"),
    ("L4", {"capability": (8, 9), "link": "none"}, "extrapolated", "extrapolated", "extrapolated"),
    ("MI300X", {"capability": None, "link": "infinity-fabric"}, "extrapolated", "extrapolated", "extrapolated"),
    ("TP4", {"tp": 4}, "measured", "measured", "measured"),
    ("TP8", {"tp": 8}, "extrapolated", "extrapolated", "extrapolated"),
    ("TP2 over PCIe", {"tp": 2, "link": "pcie"}, "extrapolated", "measured", "measured"),
    ("PP4", {"pp": 4}, "measured", "measured", "measured"),
    ("drafting", {"mtp": 1}, "measured", "extrapolated", "extrapolated"),
    ("eager", {"enforce_eager": True}, "measured", "extrapolated", "exact"),
]


@pytest.mark.parametrize(("changes", "words"), [pytest.param(row[1], row[2:], id=row[0]) for row in GRID])
def test_the_confidence_words_are_true(changes: dict[str, Any], words: tuple[str, str, str]) -> None:
    """What rows support, by hand: H100 SXM, 0.15 to 0.19 (graphs from 0.18), 1,024 sequences, 8,192 tokens, TP and PP up to 4."""
    terms = terms_of(load_of(NAMES[0], **dict(changes)))
    assert tuple(terms[label].size.confidence for label in ("context, comms", "activations", "CUDA graphs")) == words


@given(loads, st.sampled_from(["max_num_seqs", "max_num_batched_tokens"]))
def test_bands_widen_with_distance(load: EngineLoad, limit: str) -> None:
    """Twice as far above what rows support is less sure, never more."""
    far = msgspec.structs.replace(load, max_num_seqs=2048, max_num_batched_tokens=65_536)
    further = msgspec.structs.replace(far, **{limit: 2 * getattr(far, limit)})
    widths = [terms_of(entry)["activations"].size for entry in (far, further)]
    assert widths[0].high - widths[0].best <= widths[1].high - widths[1].best
