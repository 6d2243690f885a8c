"""Widths of named types: published figures, and refusal of what nobody defined."""

import pytest

from tonnage.errors import UnknownError
from tonnage.facts.dtype import STORAGE_BITS, TORCH_BITS, storage_bits, torch_bits


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("F64", 64),
        ("F32", 32),
        ("F16", 16),
        ("BF16", 16),
        ("F8_E4M3", 8),
        ("F8_E5M2", 8),
        ("F8_E8M0", 8),
        ("F6_E2M3", 6),
        ("F6_E3M2", 6),
        ("F4", 4),
        ("I64", 64),
        ("I8", 8),
        ("U16", 16),
        ("BOOL", 8),
        ("C64", 64),
    ],
)
def test_storage_bits_are_those_of_the_safetensors_format(name: str, bits: int) -> None:
    """Widths from the format's `Dtype::bitsize`; a BOOL takes a whole byte."""
    assert storage_bits(name) == bits


def test_every_dtype_of_the_format_is_known() -> None:
    """safetensors 0.8.0 defines 22 dtypes."""
    assert len(STORAGE_BITS) == 22


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bfloat16", 16),
        ("torch.bfloat16", 16),
        ("float16", 16),
        ("torch.half", 16),
        ("float32", 32),
        ("float8_e4m3fn", 8),
        ("torch.float8_e5m2", 8),
        ("float8_e8m0fnu", 8),
        pytest.param("float4_e2m1fn_x2", 8, id="two-values-in-an-element"),
        ("complex128", 128),
        ("bool", 8),
    ],
)
def test_torch_bits_are_eight_times_the_item_size(name: str, bits: int) -> None:
    """Widths from `torch.dtype.itemsize`, with and without the module's name."""
    assert torch_bits(name) == bits


@pytest.mark.parametrize("name", ["F8_E4M4", "bf16", "", "bfloat16", "F1" * 10_000])
def test_an_unknown_storage_dtype_is_refused_with_its_place(name: str) -> None:
    """No default: an unknown type is an error that says where, and stays short."""
    with pytest.raises(UnknownError) as caught:
        storage_bits(name, where="a.safetensors: tensor 'w'")
    assert str(caught.value).startswith("a.safetensors: tensor 'w': safetensors dtype ")
    assert caught.value.hint
    assert len(str(caught.value)) < 200


def test_the_hint_names_the_closest_dtypes() -> None:
    """A slip of the finger is answered with what was meant."""
    with pytest.raises(UnknownError) as caught:
        torch_bits("bfloat-16")
    assert "bfloat16" in caught.value.hint


@pytest.mark.parametrize("name", ["int4", "torch.torch.half", "fp8", "auto"])
def test_an_unknown_torch_dtype_is_refused(name: str) -> None:
    """Engine words such as `auto` and `fp8` are no torch dtypes."""
    assert name not in TORCH_BITS
    with pytest.raises(UnknownError, match="torch dtype"):
        torch_bits(name)
