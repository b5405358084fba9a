"""Unpacking in three threads: one decompresses and checks, two write files, which costs a little more than all the rest.

They hand slabs to each other, buffers that hold many small files or a piece of a large one, and use them again and again: touching
fresh memory costs more than unpacking into it. Memory: ``SLABS`` times ``SLAB_BYTES``. Nothing here decides where files become
visible: they are written into a staging folder, private, with their modes and times, and marked as unread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from glowplug.cache.pack import read_pack
from glowplug.cache.usage import unread_atime_ns
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import FileEntry
    from glowplug.cache.pack import Source

SLAB_BYTES = 2 * MIB
SLABS = 8
WRITERS = 2
_END = object()
_FOR_OTHERS = 0o022  # write access for anybody else, which no restored file gets, whatever its manifest says


def unpack(
    files: Sequence[FileEntry],
    source: Source,
    staging: Path,
    *,
    name: str,
    deadline: Deadline,
    progress: Callable[[int], None],
) -> None:
    """Write a pack's files under a staging folder.

    Args:
        files: the manifest's.
        source: the pack.
        staging: made if it is missing.
        name: the pack's key, for messages.
        deadline: checked between pieces.
        progress: told how many bytes have been written since the last call; called from the writing threads.

    Raises:
        BadPack: the pack is not what the manifest says.
        OSError: a file can't be written.
        RemoteError, DeadlineExceeded: as ``source`` and ``deadline`` do.
    """
    slabs = _Slabs()
    writers = [_Writer(staging, slabs, progress) for _ in range(WRITERS)]

    def next_slab() -> bytearray:
        slabs.retire(writers)
        return slabs.get()

    writer, left = writers[0], 0
    try:
        for entry, piece in read_pack(files, source, name=name, slab=next_slab):
            deadline.check()
            for each in writers:
                each.raise_error()
            if not left:  # a file stays with the writer that has begun it
                writer, left = min(writers, key=_backlog), entry.size_bytes
            writer.queue.put((entry, piece))
            left -= len(piece)
    finally:
        for each in writers:
            each.queue.put(_END)
        for each in writers:
            each.join()
    for each in writers:
        each.raise_error()


class _Slabs:
    """Buffers that are used again once every writer has let go of them."""

    def __init__(self) -> None:
        self._free: SimpleQueue[bytearray] = SimpleQueue()
        self._current: bytearray | None = None
        self._held: dict[int, int] = {}
        self._lock = threading.Lock()
        self._made = 0

    def retire(self, writers: Sequence[_Writer]) -> None:
        """The current slab is used up, and all its pieces, if it held any, are in the writers' queues."""
        if self._current is not None:
            self._held[id(self._current)] = len(writers)
            for writer in writers:
                writer.queue.put(self._current)

    def get(self) -> bytearray:
        """A slab that nobody uses, which becomes the current one; waits for one once all are made. For one thread."""
        if self._made < SLABS and self._free.empty():  # a small cache needs one or two, and each costs 2 ms
            self._made += 1
            self._current = bytearray(SLAB_BYTES)
        else:
            self._current = self._free.get()
        return self._current

    def let_go(self, slab: bytearray) -> None:
        """One writer is through with it."""
        with self._lock:
            self._held[id(slab)] -= 1
            if not self._held[id(slab)]:
                self._free.put(slab)


class _Writer:
    """Writes pieces to staged files in a thread of its own.

    Attributes:
        queue: takes pieces with their entries, slabs whose last piece has been put, and at last the end.
    """

    def __init__(self, staging: Path, slabs: _Slabs, progress: Callable[[int], None]) -> None:
        self._staging = staging
        self._slabs = slabs
        self._progress = progress
        self._made: set[str] = set()
        self._descriptor = -1
        self._left = 0
        self._error: BaseException | None = None
        self.queue: SimpleQueue[object] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="glowplug-write", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until all is written."""
        self._thread.join()

    def raise_error(self) -> None:
        """Raise what the thread has met."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # After an error it goes on taking, so that the other side never waits for a slab in vain.
        for item in iter(self.queue.get, _END):
            if isinstance(item, bytearray):
                self._slabs.let_go(item)
            elif isinstance(item, tuple) and self._error is None:
                try:
                    self._write(*item)
                except BaseException as error:  # noqa: BLE001  carried to the other thread, which raises it
                    self._error = error
        if self._descriptor >= 0:  # the pack ended within a file, which the other side reports
            os.close(self._descriptor)

    def _write(self, entry: FileEntry, piece: memoryview) -> None:
        if self._descriptor < 0:
            path = os.path.join(self._staging, entry.path)
            make_folders(os.path.dirname(path), self._made)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            self._left = entry.size_bytes
        self._left -= len(piece)
        self._progress(len(piece))
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]
        if not self._left:
            os.fchmod(self._descriptor, entry.mode & ~_FOR_OTHERS)
            os.utime(self._descriptor, ns=(unread_atime_ns(entry.mtime_ns), entry.mtime_ns))
            os.close(self._descriptor)
            self._descriptor = -1


def _backlog(writer: _Writer) -> int:
    return writer.queue.qsize()


def make_folders(path: str, made: set[str]) -> None:
    """As ``os.makedirs``, but every new folder is private, not the last alone, and none is looked at twice."""
    if path in made:
        return
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_folders(os.path.dirname(path), made)
        with contextlib.suppress(FileExistsError):  # the other writer was quicker
            os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    made.add(path)
