"""Bytes of a safetensors tensor as a torch tensor: over the same memory, or as a copy of its own.

The only module of ``weights`` that imports torch.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING

import torch

from glowplug.errors import IncompatibleError
from glowplug.weights.dtypes import DTYPES, torch_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


def tensor_over(view: memoryview, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """A tensor over these bytes; a copy of them where they are not aligned for their type. Keeps the memory alive.

    Args:
        view: the bytes.
        dtype: safetensors' name.
        shape: as the header gives it. Of ``F4`` torch counts pairs in the last dimension.

    Raises:
        IncompatibleError: this torch has no such type, or can't hold the shape.
    """
    torch_dtype, sizes = _torch_type(dtype), _sizes(dtype, shape)
    if not view.nbytes:
        return torch.empty(sizes, dtype=torch_dtype)
    raw = _raw(view)
    if raw.data_ptr() % torch_dtype.itemsize:
        raw = raw.clone()
    return raw.view(torch_dtype).view(sizes)


def tensor_of(view: memoryview, dtype: str, shape: Sequence[int], device: str | torch.device = "cpu") -> torch.Tensor:
    """A tensor with these bytes in memory of its own; the view may be overwritten once this returns.

    Host memory: the tensor's size if it stays on the host, else what torch needs to move it.

    Raises:
        IncompatibleError: as ``tensor_over``.
    """
    torch_dtype, sizes = _torch_type(dtype), _sizes(dtype, shape)
    if not view.nbytes:
        return torch.empty(sizes, dtype=torch_dtype, device=device)
    raw = _raw(view)
    owned = raw.clone() if torch.device(device).type == "cpu" else raw.to(device)
    return owned.view(torch_dtype).view(sizes)


def tensors_keep_their_view() -> bool:
    """Whether this torch holds on to the very view that a tensor was made over, and lets go of it with the tensor."""
    view = memoryview(bytearray(8))
    alive = weakref.ref(view)
    tensor = torch.frombuffer(view, dtype=torch.uint8)
    part = tensor[:4]
    del view, tensor
    kept = alive() is not None
    del part
    return kept and alive() is None


def _torch_type(dtype: str) -> torch.dtype:
    found = getattr(torch, DTYPES[dtype].torch or "", None)
    if not isinstance(found, torch.dtype):
        raise IncompatibleError(f"torch {torch.__version__} has no type for {dtype}", object=dtype, hint="use a newer torch")
    return found


def _sizes(dtype: str, shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return torch_shape(dtype, shape)
    except ValueError as error:
        raise IncompatibleError(str(error), object=dtype) from error


def _raw(view: memoryview) -> torch.Tensor:
    if not view.readonly:
        return torch.frombuffer(view, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "not writable": a write would be the reader's own mistake
        return torch.frombuffer(view, dtype=torch.uint8)
