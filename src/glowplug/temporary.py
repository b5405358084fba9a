"""Temporary files whose owner can be told to be dead: it holds a lock on them for as long as it needs them.

A process that is killed leaves what it was writing, and the kernel lets go of its lock. So whoever comes to the same folder next
removes exactly what nobody holds, without a clock, which may be wrong, and without a process id, which may be another container's.
This leaf names no folder and decides nothing about what is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


def create(path: str | os.PathLike[str], mode: int = 0o666) -> int:
    """Make a new file, open for writing; the lock on it ends with the descriptor.

    Args:
        path: of no file yet; names that are drawn by chance never meet.
        mode: its permissions, before the umask.

    Returns:
        The descriptor, the caller's to close.

    Raises:
        FileExistsError: there is one.
        OSError: the folder can't be written.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            with contextlib.suppress(OSError):  # without locks nobody else gets one either, and nothing is swept
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # somebody swept between the two calls; nothing was written yet


def sweep(folder: str | os.PathLike[str], names: re.Pattern[str]) -> None:
    """Remove the files of a folder that nobody holds and that are called so. What can't be removed is left; nothing is raised."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_unheld(entry.path)


def _remove_unheld(path: str) -> None:
    # Over NFS an exclusive lock needs a descriptor that may write.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
            os.unlink(path)
    finally:
        os.close(descriptor)
