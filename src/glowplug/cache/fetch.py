"""A large object as a stream, read ahead in ranges by a few threads.

Memory: ``RANGE_BYTES`` times (``READERS`` + 1), whatever the object's size. Ranges arrive in order. The object is pinned by its
ETag, so that one replaced under the reading is an error and not a mixture.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from glowplug.units import MIB

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from glowplug.cache.deadline import Deadline
    from glowplug.store.base import Store

RANGE_BYTES = 4 * MIB
READERS = 4


class ObjectStream:
    """Bytes of one object, from its first to its last, for one reader thread.

    Args:
        store: where it is.
        key: which object.
        size_bytes: its length, as its signed manifest says; a shorter object raises Unreachable, a longer one is read so far.
        etag: the ETag to pin; None for none.
        deadline: checked before each range.
    """

    def __init__(self, store: Store, key: str, size_bytes: int, *, etag: str | None, deadline: Deadline) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._etag = etag
        self._deadline = deadline
        self._next_start = 0
        self._pending: deque[Future[memoryview]] = deque()
        self._current = memoryview(b"")
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="glowplug-fetch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A range in flight is bounded by the store's own time-outs; nobody waits for it.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, at most ``size`` (-1: all of a range); empty at the end. Raises RemoteError, DeadlineExceeded."""
        if not self._current:
            self._deadline.check()
            while len(self._pending) < READERS and self._next_start < self._size_bytes:
                length = min(RANGE_BYTES, self._size_bytes - self._next_start)
                self._pending.append(self._pool.submit(self._fetch, self._next_start, length))
                self._next_start += length
            if not self._pending:
                return b""
            self._current = self._wait(self._pending.popleft())
        count = len(self._current) if size < 0 else min(size, len(self._current))
        piece, self._current = self._current[:count], self._current[count:]
        return bytes(piece)

    def _wait(self, range_: Future[memoryview]) -> memoryview:
        while True:
            try:
                return range_.result(timeout=0.25)
            except TimeoutError:
                if range_.done():  # the range's own error, not our waiting
                    raise
                self._deadline.check()

    def _fetch(self, start: int, length: int) -> memoryview:
        buffer = memoryview(bytearray(length))
        self._store.read_into(self._key, start, buffer, if_match=self._etag)
        return buffer
