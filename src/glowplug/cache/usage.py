"""Proof of use: which files of a live tree has the engine opened and read?

Before the engine starts, each file's access time is set to just before its modification time. On a file system mounted with
``relatime`` (Linux's default) the first read then moves it, once, so the proof costs the engine nothing. Where access times are not
kept (``noatime``), the answer is "unknown" and never "unused".
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from glowplug.cache.tree import TreeFile

_SECOND_NS = 1_000_000_000


def unread_atime_ns(mtime_ns: int) -> int:
    """The access time of a file that nobody has read since it was put here."""
    return mtime_ns - _SECOND_NS


def age_access_times(root: Path, files: Iterable[TreeFile]) -> None:
    """Mark files as unread. Those that are marked already are left alone; a file that can't be marked counts as read later."""
    for file in files:
        if file.atime_ns > unread_atime_ns(file.mtime_ns):
            with contextlib.suppress(OSError):
                os.utime(os.path.join(root, file.path), ns=(unread_atime_ns(file.mtime_ns), file.mtime_ns))


def read_files(root: Path, files: Iterable[TreeFile]) -> set[str] | None:
    """Which of these files have been read since they were marked, by path; None where the file system does not tell.

    A file that has been written to since is no proof: its writer moved the times.
    If none has, one of them is read here, to see whether that would have shown, and marked unread again.
    """
    read: set[str] = set()
    unread = ""
    for file in files:
        try:
            info = os.stat(os.path.join(root, file.path), follow_symlinks=False)
        except OSError:
            continue
        if info.st_mtime_ns != file.mtime_ns:
            continue
        if info.st_atime_ns > unread_atime_ns(info.st_mtime_ns):
            read.add(file.path)
        elif info.st_size:
            unread = os.path.join(root, file.path)
    if read or not unread:
        return read
    return set() if _reading_shows(unread) else None


def _reading_shows(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.read(1)
            info = os.fstat(file.fileno())
        os.utime(path, ns=(unread_atime_ns(info.st_mtime_ns), info.st_mtime_ns))
    except OSError:
        return False
    return info.st_atime_ns > unread_atime_ns(info.st_mtime_ns)
