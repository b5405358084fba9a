"""What an ``OSError`` of the local store means to the person who has to act on it.

The caller of a store knows remote errors only, so a folder without permission is ``Forbidden`` as a bucket is; a full disk stays
what it is, since no administrator of a store can help there. This module never swallows an error.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from glowplug.errors import Forbidden, GlowplugError, LocalError, ObjectNotFound, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}
# A network file system that is gone, or a disk that fails.
_BROKEN = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN, errno.EREMOTEIO}


@contextmanager
def named(path: str) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into an error of ours that names ``path``."""
    try:
        yield
    except OSError as error:
        raise translate(error, path) from error


def translate(error: OSError, path: str) -> GlowplugError:  # noqa: PLR0911  a table, one line an error
    """The error to raise for ``error`` at ``path``."""
    reason = error.strerror or str(error)
    number = error.errno
    if number == errno.ENOENT:
        return ObjectNotFound(f"no object {path}", object=path)
    if number in _NO_RIGHT:
        hint = "give the user that runs this the right to it, or choose another store"
        return Forbidden(f"{path}: {reason}", object=path, hint=hint)
    if number in _FULL:
        return LocalError(
            f"disk full while writing {path}: {reason}", object=path, hint="free space there, or choose another store"
        )
    if number == errno.ENAMETOOLONG:
        return UsageError(f"{path}: {reason}", object=path, hint="shorten the key")
    if number in {errno.ENOTDIR, errno.EISDIR, errno.ELOOP}:
        return LocalError(f"{path}: {reason}", object=path, hint="another file, or a link, is in the way; move it")
    if number in _BROKEN:
        return Unreachable(f"{path}: {reason}", object=path, hint="check the disk or the mount")
    return LocalError(f"{path}: {reason}", object=path)
