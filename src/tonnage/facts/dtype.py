"""How many bits does one element of a named type take, on disk (safetensors) and in torch?

A width is in bits, so that 4 and 6 bit types stay exact: bytes are `ceil_div(elements * bits, 8)`.
A name that we do not know is refused; a default would be a silently wrong weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tonnage.errors import UnknownError, closest_hint

STORAGE_BITS: Mapping[str, int] = MappingProxyType(
    {
        "F64": 64, "F32": 32, "F16": 16, "BF16": 16,
        "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
        "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
        "I64": 64, "I32": 32, "I16": 16, "I8": 8,
        "U64": 64, "U32": 32, "U16": 16, "U8": 8,
        "C64": 64, "BOOL": 8,
    }
)  # fmt: skip
"""The 22 dtypes that a safetensors header may name (safetensors 0.8.0). BOOL takes a byte; C64 is two F32."""

TORCH_BITS: Mapping[str, int] = MappingProxyType(
    {
        "float64": 64, "double": 64, "float32": 32, "float": 32, "float16": 16, "half": 16, "bfloat16": 16,
        "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
        "float4_e2m1fn_x2": 8,
        "int64": 64, "int32": 32, "int16": 16, "int8": 8,
        "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8,
        "complex64": 64, "complex128": 128, "bool": 8,
    }
)  # fmt: skip
"""torch's dtypes, as `torch_dtype` in a config.json names them."""

_LONGEST_SHOWN = 40


def storage_bits(name: str, *, where: str = "") -> int:
    """Return the width of one element as a safetensors header names its type.

    >>> storage_bits("BF16"), storage_bits("F8_E4M3"), storage_bits("F4")
    (16, 8, 4)

    Raises UnknownError: a name that safetensors does not define.
    """
    bits = STORAGE_BITS.get(name)
    if bits is None:
        raise _unknown(name, "safetensors dtype", STORAGE_BITS, where)
    return bits


def torch_bits(name: str, *, where: str = "") -> int:
    """Return the width of one torch element, with or without the `torch.` in front.

    `float4_e2m1fn_x2` is 8: torch's element is a byte that holds two 4-bit values.

    >>> torch_bits("bfloat16"), torch_bits("torch.bfloat16"), torch_bits("float8_e4m3fn")
    (16, 16, 8)

    Raises UnknownError: a name that torch does not define.
    """
    bits = TORCH_BITS.get(name.removeprefix("torch."))
    if bits is None:
        raise _unknown(name, "torch dtype", TORCH_BITS, where)
    return bits


def _unknown(name: str, what: str, known: Mapping[str, int], where: str) -> UnknownError:
    """Return the error with the closest names; a name too long to be one is cut before it is compared."""
    shown = name if len(name) <= _LONGEST_SHOWN else name[:_LONGEST_SHOWN] + "..."
    hint = closest_hint(shown, known, otherwise=f"known are {', '.join(known)}")
    return UnknownError(f"{what} {shown!r} is not one we know", where=where, hint=hint)
