"""The files of a pull on this machine: room for all of them first, then bytes in any order, then each in its place.

Why the room is taken first: a disk that is too small is said before the first byte crosses the network, and not after the last but
one. Bytes are written with ``pwrite`` from the ring: a page fault for each page of a mapping costs as much as the copy, and a full
disk would be a SIGBUS instead of an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import LocalError
from glowplug.units import format_bytes
from glowplug.weights.fetch.crew import each
from glowplug.weights.transfer.digests import digest_file
from glowplug.weights.transfer.pull_digests import differs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from glowplug.weights.transfer.pull_journal import Journal

_SYNC_INTERVAL_S = 1.0
_HASHING_THREADS = 4
_NO_PREALLOCATION = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class PartFile(NamedTuple):
    """A file that is being pulled."""

    name: str
    place: Path
    """Where it goes when it is whole."""
    size_bytes: int
    pieces: int
    """How many are still to be written."""
    sha256: str = ""
    """What the whole file must come to before it goes to its place; empty if nothing is known."""
    where: str = ""
    """Where it comes from, for messages."""


class Disk:
    """Writes pieces, and puts files into their places once every piece of them is on the disk. Thread-safe.

    Args:
        folder: of the checkpoint.
        journal: of the folder; written by this object's own thread from ``open`` to ``close``.
        parts: all files that are to be written.
        sync: wait for the disk before a stretch counts as done. Without it a power failure may leave a file of zeros.
    """

    def __init__(self, folder: Path, journal: Journal, parts: Sequence[PartFile], *, sync: bool = True) -> None:
        self._folder = folder
        self._journal = journal
        self._parts = {part.name: part for part in parts}
        self._left = {part.name: part.pieces for part in parts}
        self._sync = sync
        self._open: dict[str, int] = {}
        self._written: list[tuple[str, int, int]] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="glowplug-pull-sync", daemon=True)

    def reserve(self) -> None:
        """Take the room for all files.

        Raises:
            LocalError: there is not enough; what this call took is given back.
        """
        made: list[Path] = []
        try:
            self._refuse_small_disk()
            for part in self._parts.values():
                path = self._journal.part(part.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    made.append(path)
                _allocate(path, part.size_bytes)
        except OSError as error:
            for path in made:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise self._no_room(error) from error

    def open(self) -> None:
        """Begin to note what is on the disk."""
        self._thread.start()

    def write(self, name: str, start: int, view: memoryview) -> None:
        """Write a piece to its file.

        Raises:
            LocalError: the disk refused, now or in an earlier step.
        """
        if self._failure is not None:
            raise self._failure
        try:
            fd = self._descriptor(name)
            done = 0
            while done < view.nbytes:
                done += os.pwrite(fd, view[done:], start + done)
        except OSError as error:
            raise self._no_room(error) from error
        with self._lock:
            self._written.append((name, start, start + view.nbytes))

    def close(self) -> None:
        """Bring everything that was written to the disk and note it. Raises what went wrong there."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for fd in self._open.values():
                os.close(fd)
            self._open.clear()
        if self._failure is not None:
            raise self._failure

    def _descriptor(self, name: str) -> int:
        with self._lock:
            fd = self._open.get(name)
            if fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = self._open[name] = os.open(self._journal.part(name), flags, 0o666)
            return fd

    def _run(self) -> None:
        try:
            self._place([name for name, left in self._left.items() if not left])
            while not self._end.wait(_SYNC_INTERVAL_S):
                self._settle()
            self._settle()
        except OSError as error:
            self._failure = self._no_room(error)
        except BaseException as error:  # noqa: BLE001  raised by the next write, and by close
            self._failure = error

    def _settle(self) -> None:
        with self._lock:
            written, self._written = self._written, []
            descriptors = {name: self._open[name] for name, _, _ in written}
        if self._sync:
            for fd in descriptors.values():
                os.fdatasync(fd)
        if written:
            self._journal.note_done(written)
        for name, _, _ in written:
            self._left[name] -= 1
        self._place([name for name in descriptors if not self._left[name]])

    def _compare(self, name: str) -> None:
        part = self._parts[name]
        path = self._journal.part(name)
        if part.sha256 and digest_file(path).sha256 != part.sha256:  # from the page cache, most of it
            path.unlink()  # so that the next attempt fetches it again
            raise differs(part.where or name)

    def _place(self, names: Sequence[str]) -> None:
        each(self._compare, names, threads=_HASHING_THREADS, name="glowplug-pull-digest")
        for name in names:
            with self._lock:
                fd = self._open.pop(name, -1)
            if fd >= 0:
                os.close(fd)
            place, path = self._parts[name].place, self._journal.part(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, place)
            self._journal.note_placed(name, os.stat(place))

    def _refuse_small_disk(self) -> None:
        needed = 0
        for part in self._parts.values():
            with contextlib.suppress(FileNotFoundError):
                needed -= min(part.size_bytes, os.stat(self._journal.part(part.name)).st_blocks * 512)
            needed += part.size_bytes
        status = os.statvfs(self._journal.folder)
        free = status.f_bavail * status.f_frsize
        if needed > free:
            what = f"{self._folder} needs {format_bytes(needed)} more, and its disk has {format_bytes(free)} free"
            raise LocalError(what, object=str(self._folder), hint="free space, or pull to another disk")

    def _no_room(self, error: OSError) -> LocalError:
        total = format_bytes(sum(part.size_bytes for part in self._parts.values()))
        hint = "free space, or pull to another disk; then the same command goes on"
        if error.errno == errno.EFBIG:
            hint = "raise the limit on file sizes (ulimit -f)"
        elif error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            hint = "check the disk"
        where = error.filename or self._folder
        return LocalError(f"{where}: {error.strerror} (the files need {total})", object=str(where), hint=hint)


def _allocate(path: Path, size_bytes: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(fd).st_size > size_bytes:
            os.ftruncate(fd, size_bytes)
        if size_bytes:
            try:
                os.posix_fallocate(fd, 0, size_bytes)
            except OSError as error:
                if error.errno not in _NO_PREALLOCATION:
                    raise
                os.ftruncate(fd, size_bytes)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(fd)
