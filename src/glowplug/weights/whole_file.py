"""A small file of ours on this machine, written all or nothing: a marker, a seal, a picture."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT}


def write_whole(path: Path, document: bytes, *, again: str, sync: bool = False) -> None:
    """Write a file beside its place, and move it there.

    Args:
        path: of the file; replaced if it is there.
        document: its content.
        again: what to do once the disk is in order, for the hint, such as ``pull again``.
        sync: wait until it is on the disk, with all that was renamed in its folder before.

    Raises:
        LocalError: the disk refused. Nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(document)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise failed(error, path, again=again) from error


def failed(error: OSError, path: Path, *, again: str) -> LocalError:
    """The error for what could not be written at a path."""
    first = "free space there" if error.errno in _FULL else "make sure that this user may write there"
    return LocalError(f"{path}: {error.strerror}", object=str(path), hint=f"{first}, and {again}")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
