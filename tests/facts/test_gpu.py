"""A card's file, its memory, slices and the user's own words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.gpu import Card, custom_card, driver_reserve_bytes, memory_from_nvidia_smi, parse_card
from tonnage.facts.slices import mig_slice
from tonnage.units import GIB, MIB

L4 = """
name = "L4"
vendor = "NVIDIA"
arch = "Ada"
compute_capability = "8.9"
memory_cuda = "22.03 GiB"
memory_nvidia_smi = "23034 MiB"
marketing_size = "24 GB"
bandwidth = "300 GB/s"
formats = ["fp16", "bf16", "fp8", "int8"]
source = ["a log"]
checked = 2026-11-29

[tflops_dense]
fp16 = 121
"""


def changed(old: str, new: str) -> str:
    """Return the L4's file with one line changed."""
    assert old in L4
    return L4.replace(old, new)


def test_a_file_becomes_plain_numbers() -> None:
    """Sizes in bytes, rates in bytes and operations per second."""
    card = parse_card(L4, slug="l4")
    assert (card.memory.low, card.memory.best, card.memory.high) == (23_654_532_382,) * 3
    assert card.memory.confidence == "measured"
    assert card.nvidia_smi_bytes == 24_152_899_584
    assert card.marketing_bytes == 24_000_000_000
    assert card.bandwidth_bytes_per_s == 3e11
    assert card.compute_capability == (8, 9)
    assert card.flops == {"fp16": 121e12}


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        pytest.param('"22.03 GiB"', "22.03", "memory_cuda", id="bare-float"),
        pytest.param('"23034 MiB"', "23034", "memory_nvidia_smi", id="bare-integer"),
        pytest.param('"300 GB/s"', "300", "bandwidth", id="bare-rate"),
        pytest.param('"22.03 GiB"', '"22.03"', "memory_cuda", id="text-without-unit"),
        pytest.param('"300 GB/s"', '"300 GB"', "bandwidth", id="rate-without-time"),
        pytest.param('"300 GB/s"', '"0 GB/s"', "bandwidth", id="no-bandwidth"),
        pytest.param('"22.03 GiB"', '"0 GiB"', "memory_cuda", id="no-memory"),
        pytest.param('"22.03 GiB"', '"23 GiB"', "memory_cuda", id="cuda-above-nvidia-smi"),
        pytest.param('"8.9"', '"ada"', "compute_capability", id="capability-in-words"),
        pytest.param('"int8"', '"int3"', "formats", id="unknown-format"),
        pytest.param('["a log"]', "[]", "source", id="no-source"),
        pytest.param("fp16 = 121", "fp16 = 0", "tflops_dense", id="speed-zero"),
        pytest.param('name = "L4"', 'nam = "L4"', "nam", id="unknown-field"),
        pytest.param("checked = 2026-11-29", "", "checked", id="no-date"),
        pytest.param('name = "L4"', "name = ", "not TOML", id="not-toml"),
    ],
)
def test_a_malformed_file_names_itself_and_the_field(old: str, new: str, place: str) -> None:
    """Refused with the file and the field, never guessed at."""
    with pytest.raises(InputError) as caught:
        parse_card(changed(old, new), slug="l4", where="mine/l4.toml")
    assert str(caught.value).startswith("mine/l4.toml")
    assert place in str(caught.value)


def test_a_file_with_no_size_but_the_marketing_one_is_refused() -> None:
    """The label on the box is no fact about memory."""
    bare = changed('memory_cuda = "22.03 GiB"\nmemory_nvidia_smi = "23034 MiB"\n', "")
    with pytest.raises(InputError, match="memory of this card is not known"):
        parse_card(bare, slug="l4")


def test_the_marketing_size_changes_no_other_number() -> None:
    """Two cards that differ in the label alone differ in the label alone."""
    large, none = changed('"24 GB"', '"999 GB"'), changed('marketing_size = "24 GB"\n', "")
    cards = [parse_card(text, slug="l4") for text in (L4, large, none)]
    assert len({card.memory.best for card in cards}) == 1
    assert [card.marketing_bytes for card in cards] == [24 * 10**9, 999 * 10**9, None]


# nvidia-smi's MiB and CUDA's GiB, seen together: the ten rows the law was fitted on, then the eleven it was not.
SEEN = [
    pytest.param(81920, 79.325, id="a100-80g"),
    pytest.param(81559, 79.185, id="h100"),
    pytest.param(46068, 44.42, id="l40s"),
    pytest.param(24576, 23.575, id="rtx-3090"),
    pytest.param(24564, 23.64, id="rtx-4090"),
    pytest.param(23028, 22.055, id="a10g"),
    pytest.param(23034, 22.03, id="l4"),
    pytest.param(97887, 94.97, id="rtx-pro-6000"),
    pytest.param(97887, 95.01, id="rtx-pro-6000-server"),
    pytest.param(275040, 267.69, id="b300"),
    pytest.param(40960, 39.49, id="a100-40g"),
    pytest.param(143771, 139.80, id="h200"),
    pytest.param(183359, 178.35, id="b200"),
    pytest.param(189471, 184.31, id="gb200"),
    pytest.param(32607, 31.36, id="rtx-5090"),
    pytest.param(49140, 47.43, id="rtx-a6000"),
    pytest.param(46068, 44.55, id="a40"),
    pytest.param(95830, 93.05, id="h100-nvl"),
    pytest.param(12288, 11.63, id="rtx-3060"),
    pytest.param(24576, 23.53, id="a30"),
    pytest.param(49140, 47.50, id="l20-without-ecc"),
]


@pytest.mark.parametrize(("smi_mib", "cuda_gib"), SEEN)
def test_the_drivers_reserve_meets_what_was_seen(smi_mib: int, cuda_gib: float) -> None:
    """Within 0.13 GiB of every card from Ampere on, and well inside the band."""
    memory = memory_from_nvidia_smi(smi_mib * MIB, (8, 6))
    assert abs(memory.best / GIB - cuda_gib) < 0.13
    assert memory.low <= cuda_gib * GIB <= memory.high
    assert memory.confidence == "extrapolated"


@pytest.mark.parametrize(
    ("smi_mib", "cuda_gib"),
    [
        pytest.param(15360, 14.741, id="t4-older-driver"),
        pytest.param(15360, 14.563, id="t4-recent-driver"),
        pytest.param(32768, 31.74, id="v100-32g"),
    ],
)
def test_cards_before_ampere_keep_less(smi_mib: int, cuda_gib: float) -> None:
    """Volta and Turing: 0.26 GiB whatever the size, more under recent drivers."""
    memory = memory_from_nvidia_smi(smi_mib * MIB, (7, 5))
    assert memory.low <= cuda_gib * GIB <= memory.high


@given(st.integers(GIB, 400 * GIB), st.sampled_from([(6, 1), (7, 5), (8, 6), (9, 0), (12, 0)]))
def test_a_reserve_has_its_band_in_order(smi_bytes: int, capability: tuple[int, int]) -> None:
    """Law: 0 < low < best < high, and memory with its band the other way round."""
    low, best, high = driver_reserve_bytes(smi_bytes, capability)
    assert 0 < low < best < high < smi_bytes
    memory = memory_from_nvidia_smi(smi_bytes, capability)
    assert memory.low < memory.best < memory.high < smi_bytes


@pytest.mark.parametrize(
    ("text", "memory_bytes", "bandwidth", "capability"),
    [
        pytest.param('"48 GiB",864GB/s,8.9', 48 * GIB, 864e9, (8, 9), id="as-documented"),
        pytest.param("'48GiB', 864 GB/s", 48 * GIB, 864e9, None, id="shortest"),
        pytest.param("24 GB,1.5TB/s,12.0,200TFLOPS", 24 * 10**9, 1.5e12, (12, 0), id="with-speed"),
    ],
)
def test_a_custom_card_is_taken_at_its_word(text: str, memory_bytes: int, bandwidth: float, capability: tuple[int, int] | None) -> None:
    """The user's memory is what CUDA sees: no reserve is taken off, and the source says who said so."""
    card = custom_card(text)
    assert (card.memory.low, card.memory.best, card.memory.high) == (memory_bytes,) * 3
    assert (card.memory.confidence, card.memory_source) == ("read", "given on the command line")
    assert (card.bandwidth_bytes_per_s, card.compute_capability) == (bandwidth, capability)
    assert card.marketing_bytes is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("48 GiB", id="no-bandwidth"),
        pytest.param("48,864GB/s", id="no-unit"),
        pytest.param("48 GiB,864GB", id="no-time"),
        pytest.param("0 GiB,864GB/s", id="no-memory"),
        pytest.param("48 GiB,864GB/s,ada", id="capability-in-words"),
        pytest.param("48 GiB,864GB/s,8.9,fast", id="speed-in-words"),
        pytest.param("48 GiB,864GB/s,8.9,0TFLOPS", id="no-speed"),
        pytest.param("48 GiB,864GB/s,8.9,1TFLOPS,more", id="too-much"),
    ],
)
def test_a_custom_card_that_makes_no_sense_is_refused(text: str) -> None:
    """Each with a hint or a place."""
    with pytest.raises(InputError):
        custom_card(text)


def sliced() -> Card:
    """Return an A100 40 GB with two profiles whose memory the driver lists and one without."""
    rows = "".join(
        f'\n[[mig]]\nprofile = "{name}"\ncompute_slices = {slices}\nmax_instances = 1\n{memory}'
        for name, slices, memory in (
            ("1g.5gb", 1, 'memory = "4864 MiB"\n'),
            ("3g.20gb", 3, ""),
            ("7g.40gb", 7, 'memory = "40192 MiB"\n'),
        )
    )
    text = changed('memory_cuda = "22.03 GiB"\nmemory_nvidia_smi = "23034 MiB"', 'memory_nvidia_smi = "40960 MiB"')
    return parse_card(text + rows, slug="a100")


def test_a_slice_has_the_memory_that_the_driver_lists() -> None:
    """4864 MiB is the 4.75 GiB that CUDA showed on such a slice; an eighth of the bandwidth, a seventh of the speed."""
    part = mig_slice(sliced(), "MIG-1g.5gb")
    assert part.memory.best == int(4.75 * GIB)
    assert part.memory.confidence == "extrapolated"
    assert part.bandwidth_bytes_per_s == 3e11 / 8
    assert part.flops["fp16"] == pytest.approx(121e12 / 7)
    assert (part.slug, part.link, part.mig) == ("a100:1g.5gb", "pcie", ())


def test_a_slice_that_nobody_measured_says_so() -> None:
    """4 of 8 parts, 91 to 99 % of them; the true figure of this one is 19968 MiB."""
    part = mig_slice(sliced(), "3g.20gb")
    assert part.memory.low < 19968 * MIB < part.memory.high
    assert part.memory.confidence == "assumed"


def test_slices_that_a_card_does_not_have_are_refused() -> None:
    """The hint names those it has."""
    with pytest.raises(UnknownError) as caught:
        mig_slice(sliced(), "2g.10gb")
    assert "1g.5gb" in caught.value.hint
    with pytest.raises(UnknownError, match="no slice of L4"):
        mig_slice(parse_card(L4, slug="l4"), "1g.5gb")


@given(st.text(max_size=300))
def test_any_text_as_a_file_or_as_words_is_a_card_or_our_error(text: str) -> None:
    """Nothing else may escape."""
    readers: list[Callable[[], Card]] = [lambda: parse_card(text, slug="x"), lambda: custom_card(text)]
    for read in readers:
        try:
            read()
        except TonnageError as error:
            assert error.problem
