"""The folder that a pull fills: what lies there, what of it is ours, and what must not be touched."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from glowplug.errors import IntegrityError, LocalError
from glowplug.weights.transfer.marker import COMPLETE_NAME, MAX_MARKER_BYTES, MarkedFile, Marker, parse_marker

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.weights.base import Source
    from glowplug.weights.transfer.pull_journal import Journal
    from glowplug.weights.transfer.pull_wanted import Wanted

BY_SEAL = "seal"
BY_DIGESTS = "its push's digests"
BY_HEADERS = "sizes and headers"
_RANK = {BY_DIGESTS: 1, BY_SEAL: 2}


def marker_of(folder: Path) -> Marker | None:
    """The marker that an earlier pull has left; None if there is none that can be read."""
    path = folder / COMPLETE_NAME
    try:
        if path.stat().st_size > MAX_MARKER_BYTES:
            return None
        return parse_marker(path.read_bytes(), name=str(path))
    except (OSError, IntegrityError):
        return None


def is_complete(folder: Path, wanted: list[Wanted], marker: Marker | None, source: Source, verified: str) -> bool:
    """Whether all that is wanted lies here, from this source, in this version, and verified as well as it can be now."""
    if marker is None or marker.source != source.uri or _RANK.get(marker.verified, 0) < _RANK.get(verified, 0):
        return False
    marked = marker.by_name
    return set(marked) == {item.file.name for item in wanted} and all(
        marked[item.file.name] == MarkedFile(item.file.name, item.file.size_bytes, etag=item.file.etag)
        and item.file.etag
        and _is_as_marked(folder, item.file.name, item.file.size_bytes)
        for item in wanted
    )


def _is_as_marked(folder: Path, name: str, size_bytes: int) -> bool:
    """Whether a file that the marker tells of was not touched since."""
    try:
        status = os.stat(folder / name, follow_symlinks=False)
        return status.st_size == size_bytes and status.st_mtime_ns <= os.stat(folder / COMPLETE_NAME).st_mtime_ns
    except OSError:
        return False


def placed_files(
    folder: Path, journal: Journal, wanted: list[Wanted], marker: Marker | None, source: Source, *, force: bool
) -> set[str]:
    """Files that are in their place already, in the version that is wanted; from now on the journal knows what the marker knew.

    Args:
        folder: to pull to.
        journal: of the folder.
        wanted: all files to pull.
        marker: of an earlier pull.
        source: where from.
        force: let files of another hand be replaced.

    Raises:
        LocalError: a file of another hand is in the way, and ``force`` is not set; or a folder, whatever is set.
    """
    marked = marker.by_name if marker is not None else {}
    journal.note_own(
        (name, os.lstat(folder / name))
        for name, file in marked.items()
        if not journal.own.get(name) and _is_as_marked(folder, name, file.size_bytes)
    )
    there: set[str] = set()
    for item in wanted:
        name = item.file.name
        try:
            status = os.lstat(folder / name)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            raise _in_the_way(folder / name, "a file is in the place of its folder") from None
        if stat.S_ISDIR(status.st_mode):
            raise _in_the_way(folder / name, "a folder is in its place")
        if journal.is_placed(name, item.version, status):
            there.add(name)
        elif journal.is_own(name, status):
            if marker is not None and _is_same(item, marker, source):
                journal.begin(name, item.version)
                journal.note_placed(name, status)
                there.add(name)
        elif not force:
            path = folder / name
            hint = "pull to another folder, or replace what is there with --force"
            raise LocalError(f"{path} is there already, and was not pulled", object=str(path), hint=hint)
    return there


def _in_the_way(path: Path, why: str) -> LocalError:
    return LocalError(f"{path} can't be written: {why}", object=str(path), hint="move it, or pull to another folder")


def remove_old(folder: Path, journal: Journal, wanted: list[Wanted]) -> None:
    """Remove files of the version that was here before, which the new one does not have: an engine would load them too."""
    names = {item.file.name for item in wanted}
    for name in set(journal.own) - names:
        if not any(part in {"", ".", ".."} for part in name.split("/")):
            with contextlib.suppress(OSError):
                if journal.is_own(name, os.lstat(folder / name)):
                    os.unlink(folder / name)


def _is_same(item: Wanted, marker: Marker, source: Source) -> bool:
    """Whether the marker's file is the one that is wanted, and was verified as well as it can be now."""
    old = marker.by_name.get(item.file.name)
    if old is None or marker.source != source.uri:
        return False
    if (item.version.checked_blocks and marker.verified != BY_SEAL) or (item.version.sha256 and marker.verified not in _RANK):
        return False
    return bool(item.file.etag) and (old.etag, old.size_bytes) == (item.file.etag, item.file.size_bytes)
