"""From the staging folder into the live tree, in one of two ways. Both leave whole files only.

``swap`` exchanges the families' folders while nobody uses the tree: the old generation or the new one, never a mixture. ``place``
is for a tree that a running engine may use already, whose folders must stay where they are: each file is renamed into its place,
what others rely on first and what lists others last, so that whoever reads an index finds all that it names. What the engine has
written itself meanwhile is kept; it has that open, and its own key fits it at least as well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import TYPE_CHECKING, TypeAlias

from glowplug.cache.unpack import make_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_WANTED_FIRST = re.compile(r"^vllm/modelinfos/")  # read while the engine imports; the rest is only read when it compiles
# Files that name others: vLLM's index of a compiled model and its AOT artefact, Triton's groups, notes on the key.
_INDEX = re.compile(r"(^|/)(vllm_compile_cache\.py|model|cache_key_factors\.json|__grp__[^/]*\.json)$")

State: TypeAlias = "tuple[int, int, int, int]"
"""Device, inode, size and time of a file; equal as long as nobody has replaced it or written to it."""


def states(root: Path, paths: Iterable[str]) -> dict[str, State]:
    """The state of those paths that are there."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found[path] = _state(os.path.join(root, path))
    return found


def place(paths: Iterable[str], new: Path, root: Path, before: Mapping[str, State]) -> int:
    """Move staged files into a tree in use, one by one.

    Args:
        paths: what to move, relative to both folders.
        new: the staged tree.
        root: the live tree.
        before: ``states`` of the paths before the engine was started. What is in another state now is the engine's own.

    Returns:
        How many were left out, because the engine has files of its own there.

    Raises:
        OSError: a part of a path is a link or a file, and then nothing has been moved; or the disk failed half-way.
    """
    ordered = sorted(paths, key=_turn)
    _require_folders(root, ordered)
    made: set[str] = set()
    kept = 0
    for path in ordered:
        target = os.path.join(root, path)
        state = None
        with contextlib.suppress(FileNotFoundError):
            state = _state(target)
        if state is not None and state != before.get(path):
            kept += 1
            continue
        make_folders(os.path.dirname(target), made)
        os.rename(os.path.join(new, path), target)
    return kept


def swap(staging: Path, root: Path, families: Sequence[str], note: Path) -> None:
    """Put the staged tree in the live one's place, or leave that as it was.

    Args:
        staging: holds the families' folders in ``new``, an empty folder ``old``, and the note.
        root: the live tree.
        families: the folders.
        note: where the staged file of that name goes, last.

    Raises:
        OSError: the disk failed.
    """
    begun: list[str] = []
    try:
        for family in families:
            begun.append(family)
            with contextlib.suppress(FileNotFoundError):
                os.rename(root / family, staging / "old" / family)
            os.rename(staging / "new" / family, root / family)
        os.rename(staging / note.name, note)
    except OSError:
        for family in reversed(begun):
            with contextlib.suppress(OSError):
                os.rename(root / family, staging / "new" / family)
            with contextlib.suppress(OSError):
                os.rename(staging / "old" / family, root / family)
        raise


def _turn(path: str) -> tuple[int, str]:
    return (0 if _WANTED_FIRST.search(path) else 2 if _INDEX.search(path) else 1), path


def _state(path: str) -> State:
    info = os.lstat(path)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _require_folders(root: Path, paths: Iterable[str]) -> None:
    """Nothing is ever written through a link, nor is a folder of the live tree moved away."""
    checked: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        while folder and folder not in checked:
            checked.add(folder)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the latter is found one step further up
                if not stat.S_ISDIR(os.lstat(os.path.join(root, folder)).st_mode):
                    raise OSError(errno.EEXIST, "something else lies in a folder's place", os.path.join(root, folder))
            folder = os.path.dirname(folder)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(os.path.join(root, path)).st_mode):
                raise OSError(errno.EISDIR, "a folder lies in a file's place", os.path.join(root, path))
