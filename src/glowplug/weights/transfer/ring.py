"""How much memory a pull or a seal holds where the user says nothing: never so much that a small pod is killed for it."""

from __future__ import annotations

from pathlib import Path

from glowplug.units import MIB
from glowplug.weights.buffer.memory import find_room
from glowplug.weights.fetch.ferry import RING_BYTES

LEAST_BYTES = 16 * MIB
"""However little is free."""


def ring_bytes(root: Path = Path("/")) -> int:
    """The usual ring, or a quarter of what is free where that is less; the rest is for the interpreter and for dirty pages.

    Args:
        root: where ``proc`` and ``sys`` lie; another folder in tests.
    """
    free = find_room(root).free_bytes
    return RING_BYTES if free is None else min(RING_BYTES, max(LEAST_BYTES, free // 4))
