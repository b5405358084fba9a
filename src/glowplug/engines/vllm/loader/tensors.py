"""Bytes of a safetensors tensor, seen as a torch tensor without a copy."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from glowplug.errors import IncompatibleError
from glowplug.weights.dtypes import DTYPES, torch_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


def tensor_over(view: memoryview, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """A tensor over these bytes; a copy of them where they are not aligned for their type.

    Of types with two elements in a byte (FP4), torch's shape counts bytes in the last dimension.

    Raises:
        IncompatibleError: this torch has no such type.
    """
    torch_dtype = getattr(torch, DTYPES[dtype].torch or "", None)
    if torch_dtype is None:
        raise IncompatibleError(f"torch {torch.__version__} has no type for {dtype}", object=dtype, hint="use a newer image")
    sizes = torch_shape(dtype, shape)
    if not view.nbytes:
        return torch.empty(sizes, dtype=torch_dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "not writable": a write would be an error of the model's
        raw = torch.frombuffer(view, dtype=torch.uint8)
    if raw.data_ptr() % torch_dtype.itemsize:
        raw = raw.clone()
    return raw.view(torch_dtype).view(sizes)
