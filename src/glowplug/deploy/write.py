"""A deployment's files in a folder: all of them, or none that was not there before."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from glowplug.deploy.make import File


def write(folder: Path, files: Sequence[File], *, force: bool) -> None:
    """Write them. Each appears under its name only when it is whole.

    Args:
        folder: made if it is missing.
        files: what is to lie in it.
        force: replace files that are there.

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
    except OSError as error:
        problem = error.strerror or str(error)
        raise LocalError(f"--output: {folder}: {problem}", object=str(folder), hint="name a folder that you may write") from None
    finally:
        for half, _ in halves:
            half.unlink(missing_ok=True)
