"""Every element type of the safetensors format, as of safetensors 0.8, and what torch calls it.

Standard library only, and Python 3.10, as ``base``: the names of torch's types are given as text. The format names 22 types
(``safetensors/src/tensor.rs``, ``Dtype``); for the two of six bits torch has none.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class DType(NamedTuple):
    """An element type."""

    name: str
    """As a header spells it."""
    bits: int
    """Of one element. Elements below 8 bits lie packed, without gaps between rows."""
    torch: str | None
    """The attribute of the ``torch`` module; None where torch has no such type. An older torch may lack the newer ones."""


DTYPES: Mapping[str, DType] = MappingProxyType({
    dtype.name: dtype
    for dtype in (
        DType("BOOL", 8, "bool"),
        DType("F4", 4, "float4_e2m1fn_x2"),
        DType("F6_E2M3", 6, None),
        DType("F6_E3M2", 6, None),
        DType("U8", 8, "uint8"),
        DType("I8", 8, "int8"),
        DType("F8_E5M2", 8, "float8_e5m2"),
        DType("F8_E4M3", 8, "float8_e4m3fn"),
        DType("F8_E8M0", 8, "float8_e8m0fnu"),
        DType("F8_E4M3FNUZ", 8, "float8_e4m3fnuz"),
        DType("F8_E5M2FNUZ", 8, "float8_e5m2fnuz"),
        DType("I16", 16, "int16"),
        DType("U16", 16, "uint16"),
        DType("F16", 16, "float16"),
        DType("BF16", 16, "bfloat16"),
        DType("I32", 32, "int32"),
        DType("U32", 32, "uint32"),
        DType("F32", 32, "float32"),
        DType("C64", 64, "complex64"),
        DType("F64", 64, "float64"),
        DType("I64", 64, "int64"),
        DType("U64", 64, "uint64"),
    )
})  # fmt: skip


def torch_shape(dtype: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape that torch gives to a tensor of the header's shape.

    It differs for ``F4`` alone: torch's type holds two elements, so the last dimension is half of the header's, as it is with
    safetensors' own reader.

    Raises:
        ValueError: ``F4`` without a last dimension, or with an odd one; torch can't hold it.
    """
    if dtype != "F4":
        return tuple(shape)
    if not shape or shape[-1] % 2:
        raise ValueError(f"torch holds F4 in pairs, so the last dimension must be even, and the shape is {list(shape)}")
    return (*shape[:-1], shape[-1] // 2)
