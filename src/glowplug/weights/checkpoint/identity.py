"""What a checkpoint is, by content, so that a copy of it in another bucket, region or folder is the same one.

Made of the small files' bytes and of each weight file's name, size and header. The header fixes every tensor's name, type, shape
and place, and no weight is read: two checkpoints that differ in nothing but the values of their weights have one identity. That is
what a compile cache wants, which holds code and not weights; it is no proof of what was loaded. A seal is.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.weights.base import Checkpoint

_FORMAT = "glowplug-checkpoint-1"


def identity(checkpoint: Checkpoint, small: Mapping[str, bytes]) -> str:
    """The checkpoint's identity, 64 hex digits. It never depends on URL, ETag, time, or the order of a listing.

    Args:
        checkpoint: whose weight files count; ignored files do not.
        small: name to content, as ``small_files.read_small_files`` gives them.
    """
    document = [
        _FORMAT,
        [[name, hashlib.sha256(content).hexdigest()] for name, content in sorted(small.items())],
        sorted([file.name, file.size_bytes, file.header_sha256] for file in checkpoint.files),
    ]
    return hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
