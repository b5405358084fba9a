"""A deployment's files in a folder: all of them, or none that was not there before."""

from __future__ import annotations

import errno
import os
import secrets
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from glowplug.deploy.make import File

_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_MANIFESTS = (".yaml", ".yml", ".json")
"""What ``kubectl apply -f FOLDER`` and ``glowplug doctor FOLDER`` read."""


def write(folder: Path, files: Sequence[File], *, force: bool) -> list[str]:
    """Write them. Each appears under its name only when it is whole.

    Args:
        folder: made if it is missing.
        files: what is to lie in it.
        force: replace files that are there.

    Returns:
        Names of other files in the folder that count as manifests, such as those of an earlier run. They are left alone.

    Raises:
        UsageError: a file is there already, or the folder is a file.
        LocalError: it can't be written.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(
            f"--output: {folder} is not a folder", object="--output", hint="name a folder, which is made if it is missing"
        )
    there = [file.path for file in files if os.path.lexists(folder / file.path)]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        hint = "look at them, then add --force, or name another folder"
        raise UsageError(f"--output: {folder / there[0]}{more} would be replaced", object="--output", hint=hint)
    halves: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            half = folder / f".{file.path}.{secrets.token_hex(4)}.tmp"
            halves.append((half, folder / file.path))
            half.write_text(file.text, encoding="utf-8")
        while halves:
            half, path = halves[0]
            half.replace(path)
            halves.pop(0)
        ours = {file.path for file in files}
        return sorted(name for name in os.listdir(folder) if name.endswith(_MANIFESTS) and name not in ours)
    except OSError as error:
        problem = error.strerror or str(error)
        raise LocalError(f"--output: {folder}: {problem}", object=str(folder), hint=_hint(error)) from None
    finally:
        for half, _ in halves:
            half.unlink(missing_ok=True)


def _hint(error: OSError) -> str:
    if error.errno in _FULL:
        return "the disk is full: free space there, or name a folder on another disk"
    return "name a folder that you may write" if error.errno in _NO_RIGHT else "name another folder"
