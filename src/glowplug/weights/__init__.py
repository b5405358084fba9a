"""Checkpoints: what is in them, and their bytes, from an object store, a web server or a disk, as fast as these give them.

``open(uri)`` tells what a checkpoint holds; ``stream(uri)`` yields its tensors. Knows safetensors and where the bytes lie; knows no
engine, and imports torch only where a tensor is asked for. Importing this package imports none of its parts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.weights.checkpoint.opening import open as open  # noqa: A004  exported

# Where each exported name is defined; imported when it is asked for.
_EXPORTED = {
    "open": "glowplug.weights.checkpoint.opening",
    "stream": "glowplug.weights.streaming.stream",
    "stream_bytes": "glowplug.weights.streaming.stream",
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_EXPORTED[name]), name)
    globals()[name] = found
    return found
