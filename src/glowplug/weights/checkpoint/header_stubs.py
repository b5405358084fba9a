"""Weight files of which only the header is there: what an engine learns from them without reading a weight.

vLLM looks at the safetensors headers beside ``config.json`` before it loads: for the type of a model whose configuration names
none, for the layers that a quantised checkpoint left as they were, for a ``lm_head`` of its own. A folder without these files would
make it decide otherwise than with the whole checkpoint. A stub holds names, types, shapes and offsets, and ends there, so that
whoever tries to read a weight from it fails at once instead of reading zeros.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.weights.base import Checkpoint

_ALIGNMENT = 8


def header_stubs(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Name to content, for each weight file that is loaded. The same for the same headers, whatever order their keys are in.

    Memory: as much as the headers, some 100 bytes a tensor. Reads nothing.
    """
    headers: list[dict[str, dict[str, object]]] = [{} for _ in checkpoint.files]
    for tensor in checkpoint.tensors:
        file = checkpoint.files[tensor.file]
        headers[tensor.file][tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (tensor.start - file.data_start, tensor.end - file.data_start),
        }
    stubs = {}
    for file, header in zip(checkpoint.files, headers, strict=True):
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        stubs[file.name] = len(text).to_bytes(8, "little") + text
    return stubs
