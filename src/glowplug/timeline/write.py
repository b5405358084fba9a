"""Writes the start report, or its metrics, to a file that others read at any moment.

A reader sees the old content or the new one, never a part: written beside the target and renamed over it. A target that can't be
replaced by a rename (a pipe, ``/dev/stdout``, Kubernetes' ``/dev/termination-log``, which is a mount) is written in place.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING

from glowplug import temporary
from glowplug.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.timeline.report import StartReport

_NOT_BY_RENAME = frozenset(
    {errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS}
)  # a mount, or a folder of someone else's
_TERMINATION_LOG = "/dev/termination-log"  # Kubernetes keeps 4 KiB of it


def write_report(path: Path, report: StartReport) -> None:
    """Write the report as indented JSON, in UTF-8, ending with a newline. The file gets the rights that the umask leaves.

    Raises:
        LocalError: the file can't be written; it names the path. A temporary file is not left behind.
    """
    data = (json.dumps(report.to_json(brief=str(path) == _TERMINATION_LOG), indent=2, ensure_ascii=False) + "\n").encode()
    write_whole(path, data, what="report")


def write_whole(path: Path, data: bytes, *, what: str, mode: int | None = None) -> None:
    """Write a file that others read at any moment.

    Args:
        path: where to.
        data: all of it.
        what: its name, for the error.
        mode: of a file that is made or replaced; None for what the umask leaves.

    Raises:
        LocalError: the file can't be written; it names the path. A temporary file is not left behind.
    """
    try:
        if not _is_plain(path) or not _replaced(os.path.realpath(path), data, mode):  # a link keeps pointing at its file
            _overwrite(path, data)
    except OSError as error:
        raise LocalError(
            f"{what} not written to {path}: {error.strerror or error}",
            object=str(path),
            hint="nobody reads this pipe" if error.errno == errno.ENXIO else "choose a file in a folder you may write to",
        ) from None


def _is_plain(path: Path) -> bool:
    """Whether the path leads to a regular file, or to nothing yet."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


def _replaced(target: str, data: bytes, mode: int | None) -> bool:
    """Replace the target; False where it exists and a rename is not possible here."""
    try:
        _replace(target, data, mode)
    except OSError as error:
        if error.errno in _NOT_BY_RENAME and os.path.exists(target):
            return False
        raise
    return True


def _overwrite(path: Path, data: bytes) -> None:
    # Without O_NONBLOCK a pipe that nobody reads would hold the caller for ever; with it, opening fails.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "wb") as file:
        os.set_blocking(file.fileno(), True)
        file.write(data)


def _replace(target: str, data: bytes, mode: int | None) -> None:
    folder, name = os.path.split(target)
    temporary.sweep(folder, re.compile(re.escape(name) + r"\.[0-9a-f]{8}\.tmp"))
    beside = f"{target}.{secrets.token_hex(4)}.tmp"
    with open(temporary.create(beside), "wb") as file:
        try:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
