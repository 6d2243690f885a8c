"""Text with units: vLLM's own reading of k and K, GB against GiB, and refusals that quote what was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError
from tonnage.units import GIB, MIB, ceil_div, gib, parse_bytes, parse_rate, parse_share, parse_tokens, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("24 GB", 24_000_000_000, id="marketing-l4"),
        pytest.param("23034 MiB", 24_152_899_584, id="nvidia-smi-l4"),
        pytest.param("22.03GiB", 23_654_532_382, id="cuda-l4-no-space"),
        pytest.param("81,559 MiB", 85_520_809_984, id="thousands"),
        pytest.param("1_000 B", 1000, id="underscore"),
        pytest.param("64 kB", 64_000, id="kilobytes"),
        pytest.param("64 KiB", 65_536, id="kibibytes"),
        pytest.param("1.5 TiB", 1_649_267_441_664, id="tebibytes"),
        pytest.param("2TB", 2_000_000_000_000, id="terabytes"),
        pytest.param(" 24 gib ", 25_769_803_776, id="case-and-space"),
        pytest.param("0 B", 0, id="zero"),
    ],
)
def test_a_size_is_read_in_the_unit_it_states(text: str, expected: int) -> None:
    """GB is 10^9 and GiB 2^30; nvidia-smi and CUDA figures of an L4 from mission.md."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("24", "has no unit", id="bare-number"),
        pytest.param("24 G", "has a unit we do not know", id="ambiguous-G"),
        pytest.param("24 Gb", None, id="bits-read-as-bytes"),
        pytest.param("24 parsecs", "has a unit we do not know", id="no-such-unit"),
        pytest.param("", "is not a number", id="empty"),
        pytest.param("GiB", "is not a number", id="unit-alone"),
        pytest.param("-1 GiB", "is not a number", id="negative"),
        pytest.param("nan GiB", "is not a number", id="nan"),
        pytest.param("inf GiB", "is not a number", id="infinity"),
        pytest.param("1e3 GiB", "is not a number", id="exponent"),
        pytest.param("1.2.3 GiB", "is not a number", id="two-points"),
        pytest.param("9" * 40 + " GiB", "is out of range", id="forty-digits"),
    ],
)
def test_a_size_that_cannot_be_right_is_refused_in_words(text: str, said: str | None) -> None:
    """A missing or unknown unit is never guessed; `Gb` is taken as GB, as people mean it."""
    if said is None:
        assert parse_bytes(text) == 24_000_000_000
        return
    with pytest.raises(InputError) as caught:
        parse_bytes(text, where="l4.toml: memory")
    assert str(caught.value).startswith("l4.toml: memory: size ")
    assert said in caught.value.problem
    assert caught.value.hint == "write it like '24 GiB' or '24 GB'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("864GB/s", 864e9, id="l40s"),
        pytest.param("4.8 TB/s", 4.8e12, id="h200"),
        pytest.param("300 GB/S", 300e9, id="upper-case"),
        pytest.param(" 3350 GB/s ", 3350e9, id="spaces"),
    ],
)
def test_a_bandwidth_is_bytes_per_second(text: str, expected: float) -> None:
    """Published bandwidths, from the catalogue's README."""
    assert parse_rate(text) == expected


@pytest.mark.parametrize("text", ["864GB", "864", "", "/s", "864 GB/min", "x GB/s", "864/s"])
def test_a_bandwidth_without_its_second_is_refused(text: str) -> None:
    """A size is no bandwidth, and a number without a unit is neither."""
    with pytest.raises(InputError):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("16000", 16_000, id="plain"),
        pytest.param("16k", 16_000, id="decimal-k"),
        pytest.param("16K", 16_384, id="binary-K"),
        pytest.param("16Ki", 16_384, id="binary-Ki"),
        pytest.param("1.5k", 1_500, id="fraction-of-k"),
        pytest.param("25.6k", 25_600, id="vllm-docs-25.6k"),
        pytest.param("2m", 2_000_000, id="millions"),
        pytest.param("1M", 1_048_576, id="binary-M"),
        pytest.param("1Mi", 1_048_576, id="binary-Mi"),
        pytest.param("131,072", 131_072, id="thousands"),
        pytest.param("32_768", 32_768, id="underscores"),
    ],
)
def test_a_count_of_tokens_is_read_as_vllm_reads_it(text: str, expected: int) -> None:
    """vLLM's human_readable_int: k is 1,000, K is 1,024."""
    assert parse_tokens(text) == expected


@pytest.mark.parametrize("text", ["1.5", "16kk", "16 tokens", "-16k", "", "k", "16%", "1e5", "0.0001k", "nan", "١٦"])
def test_a_count_that_is_no_whole_number_is_refused(text: str) -> None:
    """Half a token, an unknown suffix, a sign, digits of another script: an error with an example."""
    with pytest.raises(InputError) as caught:
        parse_tokens(text)
    assert "16Ki" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"), [("0.7", 0.7), ("70%", 0.7), ("0", 0.0), ("100%", 1.0), ("1", 1.0), (" 50 % ", 0.5), ("1e-2", 0.01)]
)
def test_a_share_is_between_nothing_and_all(text: str, expected: float) -> None:
    """A share as a fraction or in per cent."""
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["70", "-0.1", "101%", "nan", "inf", "", "%", "half", "1.0001"])
def test_a_share_outside_its_range_is_refused(text: str) -> None:
    """`70` is no share: it may be per cent or a slip; NaN compares with nothing."""
    with pytest.raises(InputError, match="is not between 0 and 1"):
        parse_share(text)


@given(st.text(max_size=40))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Whatever is typed, the answer is a number or an error of ours."""
    for parse in (parse_bytes, parse_rate, parse_tokens, parse_share):
        try:
            assert parse(text) >= 0
        except TonnageError as error:
            assert len(str(error)) < 200


@given(st.integers(0, 10**6), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_a_whole_size_in_binary_units_is_exact(count: int, unit: str) -> None:
    """Whole numbers of KiB, MiB and GiB come through without rounding."""
    factor = {"KiB": 2**10, "MiB": MIB, "GiB": GIB}[unit]
    assert parse_bytes(f"{count} {unit}") == count * factor


@given(st.integers(0, 10**15), st.integers(1, 10**9))
def test_ceil_div_is_the_least_that_covers(numerator: int, denominator: int) -> None:
    """Memory needed rounds up: the quotient covers, one less does not."""
    quotient = ceil_div(numerator, denominator)
    assert quotient * denominator >= numerator > (quotient - 1) * denominator


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(16_384, "16 KiB", id="qwen3.5-4b-token"),
        pytest.param(9_319_730_176, "8.68 GiB", id="qwen3.5-4b-weights"),
        pytest.param(2**30, "1 GiB", id="one"),
        pytest.param(1023, "1023 B", id="below-a-kib"),
        pytest.param(0, "0 B", id="nothing"),
        pytest.param(-(2**30), "-1 GiB", id="a-shortfall"),
        pytest.param(1_500 * 2**30, "1,500 GiB", id="thousands"),
    ],
)
def test_size_names_the_unit_a_person_would_choose(count: int, expected: str) -> None:
    """The published 8.68 GiB of Qwen3.5-4B, and the edges between units."""
    assert size(count) == expected


def test_gib_of_an_l4_is_what_cuda_reports() -> None:
    """mission.md: about 22.03 GiB by CUDA, 22.49 by nvidia-smi, 22.35 for a decimal 24 GB."""
    assert [gib(parse_bytes(text)) for text in ("22.03 GiB", "23034 MiB", "24 GB")] == ["22.03", "22.49", "22.35"]
