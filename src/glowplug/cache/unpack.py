"""Unpacking in two threads: one decompresses and hashes, the other writes files. The two halves cost about the same.

Memory: ``QUEUE_PIECES`` pieces of at most 1 MiB. Nothing here decides where files become visible: they are written into a staging
folder, private, with their modes and times, and marked as unread.
"""

from __future__ import annotations

import os
import threading
from queue import Queue
from typing import TYPE_CHECKING

from glowplug.cache.usage import unread_atime_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import FileEntry

QUEUE_PIECES = 32
_FOR_OTHERS = 0o022  # write access for anybody else, which no restored file gets, whatever its manifest says


def unpack(
    pieces: Iterable[tuple[FileEntry, memoryview]], staging: Path, deadline: Deadline, progress: Callable[[int], None]
) -> None:
    """Write a pack's files under a staging folder.

    Args:
        pieces: as ``pack.read_pack`` gives them, their digests checked.
        staging: made if it is missing.
        deadline: checked between pieces.
        progress: told how many bytes have been written since the last call; called from the writing thread.

    Raises:
        OSError: a file can't be written.
        Exception: whatever ``pieces`` raises.
    """
    writer = _Writer(staging, progress)
    try:
        for entry, piece in pieces:
            deadline.check()
            writer.put(entry, piece)
    finally:
        writer.close()
    writer.raise_error()


class _Writer:
    """Writes pieces to staged files in a thread of its own."""

    def __init__(self, staging: Path, progress: Callable[[int], None]) -> None:
        self._staging = staging
        self._progress = progress
        self._queue: Queue[tuple[FileEntry, memoryview] | None] = Queue(QUEUE_PIECES)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="glowplug-write", daemon=True)
        self._thread.start()

    def put(self, entry: FileEntry, piece: memoryview) -> None:
        """Queue a piece; raises what the thread has met."""
        self.raise_error()
        self._queue.put((entry, piece))

    def close(self) -> None:
        """Wait until all is written."""
        self._queue.put(None)
        self._thread.join()

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        pieces = iter(self._queue.get, None)
        try:
            made: set[str] = set()
            for entry, piece in pieces:
                self._write(entry, piece, pieces, made)
        except BaseException as error:  # noqa: BLE001  carried to the other thread, which raises it
            self._error = error
            for _ in pieces:  # the other side must never block on a full queue
                pass

    def _write(self, entry: FileEntry, piece: memoryview, pieces: Iterator[tuple[FileEntry, memoryview]], made: set[str]) -> None:
        path = os.path.join(self._staging, entry.path)
        make_folders(os.path.dirname(path), made)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = entry.size_bytes
            while True:
                _write_all(descriptor, piece)
                left -= len(piece)
                self._progress(len(piece))
                if left <= 0:
                    break
                following = next(pieces, None)
                if following is None:  # the pack ended early; read_pack raises that
                    return
                piece = following[1]
            os.fchmod(descriptor, entry.mode & ~_FOR_OTHERS)
            os.utime(descriptor, ns=(unread_atime_ns(entry.mtime_ns), entry.mtime_ns))
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def make_folders(path: str, made: set[str]) -> None:
    """As ``os.makedirs``, but every new folder is private, not the last alone, and none is looked at twice."""
    if path in made:
        return
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_folders(os.path.dirname(path), made)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    made.add(path)
