"""A live cache tree on disk: its files, and whether they still change.

Only plain files count. Links, sockets and devices are never followed and never packed, and junk (locks, temporary files) is left
out by the families' rules. Scanning reads names and metadata only, never content; before a tree is published, groups of files that
are not complete are left out as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.families.base import Kept
from glowplug.cache.live import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from glowplug.cache.families import Family


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One plain file of a live tree.

    Attributes:
        path: ``family/relative/path``.
        size_bytes, mode, mtime_ns, atime_ns: from its metadata; ``mode`` is permission bits only.
        compiled: its family counts it as compiled code.
    """

    path: str
    size_bytes: int
    mode: int
    mtime_ns: int
    atime_ns: int
    compiled: bool

    @property
    def state(self) -> tuple[str, int, int]:
        """Equal as long as nobody has written to the file."""
        return self.path, self.size_bytes, self.mtime_ns


def scan(root: Path, families: Iterable[Family]) -> list[TreeFile]:
    """The files that belong into a bundle, sorted by path.

    What vanishes during the scan is left out. A folder that can't be read raises OSError: a tree with a hole must not be published.
    """
    found: list[TreeFile] = []
    for family in families:
        for relative, info in walk(os.path.join(root, family.name)):
            if family.keeps(relative):
                found.append(
                    TreeFile(
                        path=f"{family.name}/{relative}",
                        size_bytes=info.st_size,
                        mode=stat.S_IMODE(info.st_mode) & 0o777,
                        mtime_ns=info.st_mtime_ns,
                        atime_ns=info.st_atime_ns,
                        compiled=family.is_compiled(relative),
                    )
                )
    found.sort(key=lambda file: file.path)
    return found


def complete(root: Path, families: Iterable[Family], files: Sequence[TreeFile]) -> tuple[list[TreeFile], list[str]]:
    """The files without those groups of which something is missing.

    Reads small notes of the writers that name the files of a group.

    Args:
        root: the tree's root.
        families: as for ``scan``.
        files: what ``scan`` has found.

    Returns:
        What is left, and a line for each group that was left out.
    """
    home = canonical(root)
    bad: dict[str, str] = {}
    for family in families:
        prefix = f"{family.name}/"
        paths = {file.path.removeprefix(prefix) for file in files if file.path.startswith(prefix)}
        for group in family.incomplete(Kept(root / family.name, home / family.name, paths)):
            bad[f"{prefix}{group.path}".rstrip("/")] = group.lacks
    return [file for file in files if bad.keys().isdisjoint(_and_above(file.path))], [
        f"{path}: {lacks}" for path, lacks in sorted(bad.items())
    ]


def _and_above(path: str) -> Iterator[str]:
    """A path, and the folders that it is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every plain file below a folder, in no order: its path relative to the folder, and its metadata.

    Links are not followed, not even the folder itself. Raises OSError for a folder that can't be read; one that is gone is empty.
    """
    if os.path.islink(top):
        return
    folders = [(top, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, f"{prefix}{entry.name}/"))
                    elif entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            yield prefix + entry.name, entry.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
