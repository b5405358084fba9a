"""What a pull has on disk already, kept so that it is true after Ctrl-C, a kill, or a power failure.

All unfinished files lie in one hidden folder beside their places, with a journal: one line of JSON for each thing that has
happened. A stretch is noted only when its bytes have reached the disk, so the journal may know too little, and never too much. A
torn last line is ignored. The journal is locked while a pull is at work.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import LocalError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

STATE_FOLDER = ".glowplug-pull"
_SCHEMA = "glowplug.dev/pull/v1"


class Version(NamedTuple):
    """Which content a file was begun with. What was fetched of another one is worthless."""

    size_bytes: int
    etag: str
    checked_blocks: int
    """Size of the sealed blocks that each stretch was compared with; 0 without a seal."""
    sha256: str = ""
    """Of the whole file, compared before it goes into its place; empty where the push has left none, or a seal covers it."""


@dataclass(slots=True)
class FileState:
    """What the journal knows of a file."""

    version: Version
    done: set[tuple[int, int]] = field(default_factory=set)
    """Stretches, as start and end."""
    placed: bool = False
    """It is whole and was put into its place."""


class Journal:
    """Of one folder. Used by one thread at a time.

    Args:
        folder: where the checkpoint is pulled to.
        source: its URI; what was noted for another one is forgotten.

    Raises:
        LocalError: the folder can't be written, or another pull is at work there.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder / STATE_FOLDER
        self._path = self.folder / "journal"
        self.files: dict[str, FileState] = {}
        self.own: dict[str, tuple[int, int]] = {}
        """Inode and modification time of files in the folder that a pull has put there, in whatever version."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "a+b")  # noqa: SIM115  held until close, for its lock
        except OSError as error:
            raise LocalError(
                f"{folder}: {error.strerror}", object=str(folder), hint="pull to a folder that you may write"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            hint = "wait for it, or pull to another folder"
            raise LocalError(f"another pull is at work in {folder}", object=str(folder), hint=hint) from None
        if not self._read(source):
            self.files.clear()
            self.own.clear()
            self._file.truncate(0)
            self._write([{"schema": _SCHEMA, "source": source}])

    def begin(self, name: str, version: Version) -> FileState:
        """The state of a file that is wanted in this version; a fresh one if it was begun in another, or can't be told apart."""
        state = self.files.get(name)
        if state is None or state.version != version or not version.etag:
            state = self.files[name] = FileState(version)
            self._write(
                [
                    {
                        "file": name,
                        "bytes": version.size_bytes,
                        "etag": version.etag,
                        "blocks": version.checked_blocks,
                        "sha256": version.sha256,
                    }
                ]
            )
            with contextlib.suppress(OSError):
                self.part(name).unlink()
        return state

    def part(self, name: str) -> Path:
        """Where a file lies until it is whole."""
        return self.folder / "parts" / name

    def note_done(self, stretches: Iterable[tuple[str, int, int]]) -> None:
        """These stretches have reached the disk."""
        found = list(stretches)
        for name, start, end in found:
            self.files[name].done.add((start, end))
        self._write([{"done": name, "start": start, "end": end} for name, start, end in found])

    def note_placed(self, name: str, status: os.stat_result) -> None:
        """The file is whole, and this is the file in its place."""
        self.files[name].placed = True
        self.own[name] = _mark(status)
        self._write([{"placed": name, "inode": status.st_ino, "mtime_ns": status.st_mtime_ns}])

    def note_own(self, found: Iterable[tuple[str, os.stat_result]]) -> None:
        """These files in the folder are of an earlier pull: so the complete marker says, which is about to go."""
        lines: list[dict[str, object]] = []
        for name, status in found:
            self.own[name] = _mark(status)
            lines.append({"own": name, "inode": status.st_ino, "mtime_ns": status.st_mtime_ns})
        self._write(lines)

    def is_placed(self, name: str, version: Version, status: os.stat_result) -> bool:
        """Whether the file in its place is the one that an earlier attempt has put there, and in this version."""
        state = self.files.get(name)
        return state is not None and state.version == version and state.placed and self.is_own(name, status)

    def is_own(self, name: str, status: os.stat_result) -> bool:
        """Whether the file in its place is one that a pull has put there, in whatever version, untouched since."""
        return self.own.get(name) == _mark(status)

    def close(self) -> None:
        """Let another pull begin. Of an attempt that came to nothing, nothing is left."""
        if self.own or any(state.done for state in self.files.values()):
            self._file.close()
        else:
            self.remove()

    def remove(self) -> None:
        """All is done: nothing of it is needed any more."""
        self._file.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, lines: Iterable[dict[str, object]]) -> None:
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise LocalError(
                f"{self._path}: {error.strerror}", object=str(self._path), hint="free space, and pull again"
            ) from error

    def _read(self, source: str) -> bool:
        """Whether this is a journal of the same source."""
        self._file.seek(0)
        first, *lines = self._file.read().split(b"\n")
        try:
            if json.loads(first) != {"schema": _SCHEMA, "source": source}:
                return False
            for line in lines[:-1]:  # what follows the last newline was torn
                self._apply(json.loads(line))
        except (ValueError, KeyError, TypeError):
            return False
        if lines and lines[-1]:
            self._file.truncate(self._file.tell() - len(lines[-1]))
        return True

    def _apply(self, line: dict[str, object]) -> None:
        match line:
            case {"file": str(name), "bytes": int(size), "etag": str(etag), "blocks": int(blocks), "sha256": str(sha256)}:
                self.files[name] = FileState(Version(size, etag, blocks, sha256))
            case {"done": str(name), "start": int(start), "end": int(end)}:
                self.files[name].done.add((start, end))
            case {"placed": str(name), "inode": int(inode), "mtime_ns": int(mtime_ns)}:
                self.files[name].placed = True
                self.own[name] = inode, mtime_ns
            case {"own": str(name), "inode": int(inode), "mtime_ns": int(mtime_ns)}:
                self.own[name] = inode, mtime_ns
            case _:
                raise ValueError


def _mark(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_mtime_ns
