"""What this node has learned about generations: notes in a private folder beside the live ones.

They count at once and need no store, so that an engine which crashes on a generation does so once on a node, whatever the network
does. Only a note's existence counts; its content is for people. The oldest go when there are too many.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

MAX_NOTES = 256
"""Notes kept on a node, of at most 16 KiB each."""
_FOLDER = ".glowplug-bad"
_NAME = re.compile(r"([0-9a-f]{64})\.json")


def noted(base: Path) -> frozenset[str]:
    """Digests of the generations that this node never uses again. Empty where the folder can't be read or is not private."""
    try:
        folder = _checked(base / _FOLDER)
        return frozenset(match[1] for name in os.listdir(folder) if (match := _NAME.fullmatch(name)))
    except OSError:
        return frozenset()


def put_note(base: Path, generation: str, document: bytes) -> None:
    """Never use a generation on this node again.

    Args:
        base: the folder in which live folders lie.
        generation: its digest.
        document: the testimony, for whoever looks.

    Raises:
        LocalError: the note can't be written.
    """
    folder = base / _FOLDER
    path = folder / f"{generation}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _checked(folder)
        half = path.with_suffix(f".{os.getpid()}.tmp")
        half.write_bytes(document)
        half.replace(path)
        _prune(folder)
    except OSError as error:
        raise LocalError(
            f"cannot note that a generation is bad: {path}: {error.strerror or error}",
            object=str(path),
            hint="without the note it may be restored here again; see --cache-dir",
        ) from None


def drop_note(base: Path, generation: str) -> bool:
    """Allow a generation on this node again. False if there was no note, or it can't be removed."""
    try:
        (base / _FOLDER / f"{generation}.json").unlink()
    except OSError:
        return False
    return True


def _checked(folder: Path) -> Path:
    """The folder, if nobody else can write to it. Raises OSError."""
    info = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} is not a private folder of uid {os.geteuid()}")
    return folder


def _prune(folder: Path) -> None:
    """Remove the oldest notes above the limit, and what a killed process has left half-written."""
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[MAX_NOTES:]:
        with contextlib.suppress(OSError):
            path.unlink()
