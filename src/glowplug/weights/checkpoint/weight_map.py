"""The index of a checkpoint in several files: which tensor lies in which of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glowplug.errors import BadCheckpoint
from glowplug.units import MIB

if TYPE_CHECKING:
    from glowplug.weights.base import Entry, Source

_MOST_BYTES = 256 * MIB
_HINT = "copy the model again, or remove the index"


def read_weight_map(source: Source, index: Entry) -> dict[str, str]:
    """Tensor to file, as the index has it; neither is looked for. Blocks for one read.

    Args:
        source: where it lies.
        index: ``model.safetensors.index.json``, or its like.

    Raises:
        BadCheckpoint: it is no index.
        RemoteError: it can't be read.
    """
    name = source.name_of(index)
    if index.size_bytes > _MOST_BYTES:
        raise BadCheckpoint(f"{name} has {index.size_bytes} bytes, too many for an index", object=name, hint=_HINT)
    raw = source.read_small(index, 0, index.size_bytes)
    try:
        document = json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise BadCheckpoint(f"{name} is nested too deeply", object=name, hint=_HINT) from None
    except ValueError as error:
        raise BadCheckpoint(f"{name} is not JSON: {error}", object=name, hint=_HINT) from error
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found or not all(isinstance(file, str) for file in found.values()):
        raise BadCheckpoint(f"{name} has no weight_map from tensors to files", object=name, hint=_HINT)
    return found
