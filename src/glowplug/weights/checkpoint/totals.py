"""Sums over a checkpoint: how many tensors, bytes and parameters there are, of which type and in which file."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from typing import TypeVar

    from glowplug.weights.base import Checkpoint, TensorInfo

    _Key = TypeVar("_Key", bound=Hashable)


class Total(NamedTuple):
    """Of some tensors."""

    tensors: int
    bytes: int
    parameters: int
    """Elements. What a quantizer has packed into larger integers counts as these."""


def by_dtype(checkpoint: Checkpoint) -> dict[str, Total]:
    """A total for each element type, largest first."""
    sums = _sums((tensor.dtype, tensor) for tensor in checkpoint.tensors)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].bytes, item[0])))


def by_file(checkpoint: Checkpoint) -> list[Total]:
    """A total for each file, in the order of ``Checkpoint.files``."""
    sums = _sums((tensor.file, tensor) for tensor in checkpoint.tensors)
    return [sums.get(index, Total(0, 0, 0)) for index in range(len(checkpoint.files))]


def total(checkpoint: Checkpoint) -> Total:
    """Of all."""
    return _sums((0, tensor) for tensor in checkpoint.tensors).get(0, Total(0, 0, 0))


def _sums(pairs: Iterable[tuple[_Key, TensorInfo]]) -> dict[_Key, Total]:
    sums: defaultdict[_Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, tensor in pairs:
        found = sums[key]
        found[0] += 1
        found[1] += tensor.size_bytes
        found[2] += math.prod(tensor.shape)
    return {key: Total(*found) for key, found in sums.items()}
