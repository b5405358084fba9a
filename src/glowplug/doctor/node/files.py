"""Small files of ``/proc``, ``/sys`` and ``/dev``, below the machine's root or a test's own. What can't be read is empty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 64 * 1024


def on(root: str, *parts: str) -> str:
    """An absolute path as it lies below the root."""
    return os.path.join(root, *(part.lstrip("/") for part in parts))


def names(folder: str) -> list[str]:
    """What is in a folder, in order."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def text(path: str | Path) -> str:
    """A file's content without blanks around it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""
