"""A large object as a stream, read ahead in ranges by a few threads.

Memory: ``RANGE_BYTES`` times (``READERS`` + 1), whatever the object's size. Ranges arrive in order. The threads are daemons, so a
store that hangs never keeps the process from ending.

The object is not pinned by its ETag: a pack is named by its digest, so who replaces it meanwhile writes the same bytes, and the
reader checks every file's digest anyway.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from glowplug.cache.manifest import NOT_USED
from glowplug.errors import BadPack, Unreachable
from glowplug.units import MIB

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from glowplug.cache.deadline import Deadline
    from glowplug.store.base import Store

RANGE_BYTES = 4 * MIB
READERS = 4
_POLL_S = 0.25


class ObjectStream:
    """Bytes of one object, from its first to its last, for one reader thread.

    Args:
        store: where it is.
        key: which object.
        size_bytes: its length, as its signed manifest says; an object of another length raises BadPack.
        deadline: checked while waiting for a range.
    """

    def __init__(self, store: Store, key: str, size_bytes: int, *, deadline: Deadline) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._deadline = deadline
        self._next_start = 0
        self._pending: deque[_Range] = deque()
        self._current = memoryview(b"")
        self._wanted: SimpleQueue[_Range | None] = SimpleQueue()
        self._readers = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A range in flight is bounded by the store's own time-outs; nobody waits for it.
        for range_ in self._pending:
            range_.unwanted = True
        for _ in range(self._readers):
            self._wanted.put(None)

    def read(self, size: int = -1, /) -> memoryview:
        """The next bytes, at most ``size`` (-1: all of a range), as a view that stays valid; empty at the end.

        Raises:
            BadPack: the object is shorter or longer than its manifest says.
            RemoteError: the store did not deliver.
            DeadlineExceeded: the time is up, or the reading was called off.
        """
        if not self._current:
            self._deadline.check()
            self._read_ahead()
            if not self._pending:
                return self._current
            self._current = self._wait(self._pending.popleft())
        count = len(self._current) if size < 0 else min(size, len(self._current))
        piece, self._current = self._current[:count], self._current[count:]
        return piece

    def _read_ahead(self) -> None:
        while len(self._pending) < READERS and self._next_start < self._size_bytes:
            range_ = _Range(self._next_start, min(RANGE_BYTES, self._size_bytes - self._next_start))
            self._next_start += range_.length
            self._pending.append(range_)
            self._wanted.put(range_)
            if self._readers < READERS:
                self._readers += 1
                threading.Thread(target=self._serve, name="glowplug-fetch", daemon=True).start()

    def _wait(self, range_: _Range) -> memoryview:
        while not range_.ready.wait(_POLL_S):
            self._deadline.check()
        if isinstance(range_.error, Unreachable):  # a range past the end of what is too short, or a store that does not answer
            self._check_length(self._store.head(self._key).size_bytes)
        if range_.error is not None:
            raise range_.error
        self._check_length(range_.object_bytes)
        return range_.buffer

    def _check_length(self, found_bytes: int | None) -> None:
        if found_bytes is not None and found_bytes != self._size_bytes:
            problem = "is truncated" if found_bytes < self._size_bytes else "is too long"
            raise BadPack(
                f"{self._key} {problem}: it has {found_bytes} bytes, its manifest says {self._size_bytes}",
                object=self._key,
                hint=NOT_USED,
            )

    def _serve(self) -> None:
        """A reader thread's life: fetch what is wanted until there is nothing more."""
        for range_ in iter(self._wanted.get, None):
            if not range_.unwanted:
                range_.fetch(self._store, self._key)


class _Range:
    """A part of the object, wanted or there."""

    __slots__ = ("buffer", "error", "length", "object_bytes", "ready", "start", "unwanted")

    def __init__(self, start: int, length: int) -> None:
        self.start = start
        self.length = length
        self.buffer = memoryview(b"")
        self.object_bytes: int | None = None
        self.error: BaseException | None = None
        self.ready = threading.Event()
        self.unwanted = False

    def fetch(self, store: Store, key: str) -> None:
        buffer = memoryview(bytearray(self.length))
        try:
            self.object_bytes = store.read_into(key, self.start, buffer)
            self.buffer = buffer
        except BaseException as error:  # noqa: BLE001  carried to the reading thread, which raises it
            self.error = error
        self.ready.set()
