"""A checkpoint on this machine as a stream of tensors, without a copy: its files are mapped, and read ahead of the reader.

A file in the page cache needs no buffer of ours beside it, and one that is not there yet comes in fastest as large reads, many at a
time, where a mapping alone would wait for each of its own small ones. So threads ask the kernel for what the reader will want
next, and the reader touches pages that are there.

Memory: none of ours but page tables. What is mapped is page cache, which the kernel takes back when it needs the room, and no more
than ``AHEAD_BYTES`` of it are asked for before the reader is there. Pages that a reader writes to become its own.

A file that is replaced or rewritten under the load is an error, told when the load leaves that file. One that is *cut short* under
it ends the process (SIGBUS), as with every program that maps files.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from typing import TYPE_CHECKING, Literal

from glowplug.store import local_errors
from glowplug.threads import begin
from glowplug.units import MIB
from glowplug.weights.base import FetchStats
from glowplug.weights.sources.page_cache import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from glowplug.weights.base import Plan, TensorInfo
    from glowplug.weights.sources.local import LocalSource

AHEAD_BYTES = 512 * MIB
"""How far before the reader the kernel is asked to read."""
THREADS = 4
_STEP_BYTES = 8 * MIB


class MappedStream:
    """A context and an iterator, for one pass and one thread. Views stay valid for as long as they are held.

    Args:
        source: where the files lie; closed with the stream.
        plan: what, in full mode.
        threads: that ask the kernel to read.
    """

    def __init__(self, source: LocalSource, plan: Plan, *, threads: int = THREADS) -> None:
        self.plan = plan
        self._source = source
        self._threads = threads
        self._ahead = _Ahead(plan)
        self._begun_s = self._seconds = 0.0
        self._delivered = 0
        self._is_read = False

    @property
    def mode(self) -> Literal["mapped"]:
        """Mapped."""
        return "mapped"

    @property
    def memory_bytes(self) -> int:
        """Of buffers: none."""
        return 0

    def __enter__(self) -> Self:
        self._begun_s = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[TensorInfo, memoryview]]:
        """Every wanted tensor, in the order of the plan.

        Raises:
            ObjectNotFound: a file is gone.
            ObjectChanged: a file is no longer the one that was opened.
            ValueError: it was iterated before.
        """
        if self._is_read:
            raise ValueError("a stream can be read once; open another one")
        self._is_read = True
        files = self.plan.checkpoint.files
        by_file: dict[int, list[TensorInfo]] = {}
        for placed in self.plan.tensors:
            by_file.setdefault(placed.tensor.file, []).append(placed.tensor)
        for number, tensors in by_file.items():
            path = self._source.name_of(files[number])
            with local_errors.named(path), self._source.opened(files[number]) as fd:
                view = memoryview(mmap.mmap(fd, files[number].size_bytes, flags=mmap.MAP_PRIVATE))
                self._ahead.begin(number, fd, self._threads)
                try:
                    for tensor in tensors:
                        self._ahead.reached(tensor.start)
                        self._delivered += tensor.size_bytes
                        yield tensor, view[tensor.start : tensor.end]
                finally:
                    self._ahead.end()
        self._seconds = time.monotonic() - self._begun_s

    def stats(self) -> FetchStats:
        """What it has cost so far. Of requests, those to read what was not in the page cache."""
        seconds = self._seconds or (time.monotonic() - self._begun_s if self._begun_s else 0.0)
        return FetchStats(
            bytes=self._delivered,
            bytes_read=self._ahead.bytes_asked,
            seconds=seconds,
            requests=self._ahead.requests,
            concurrency=self._threads,
            most_at_once=self._ahead.most_threads,
            chunk_bytes=_STEP_BYTES,
            cpu_s=self._ahead.cpu_s,
        )

    def close(self) -> None:
        """Stop reading ahead. May be called more than once."""
        self._ahead.end()
        self._source.close()


class _Ahead:
    """Threads that have the kernel read one file, as far as the reader's place allows."""

    def __init__(self, plan: Plan) -> None:
        self.requests = 0
        self.bytes_asked = 0
        self.cpu_s = 0.0
        self.most_threads = 0
        self._plan = plan
        self._moved = threading.Condition()
        self._workers: list[threading.Thread] = []
        self._steps: Iterator[tuple[int, int]] = iter(())
        self._place = 0
        self._over = False

    def begin(self, file: int, fd: int, threads: int) -> None:
        """Begin with a file. Nothing is started where all of it is in the page cache already."""
        ranges = [piece for piece in self._plan.ranges if piece.file == file]
        size = sum(piece.size_bytes for piece in ranges)
        there = resident_bytes(fd, ranges[0].start, ranges[-1].end - ranges[0].start) if ranges else 0
        if there is not None and there >= size:
            return
        self._steps = (
            (start, min(start + _STEP_BYTES, piece.end)) for piece in ranges for start in range(piece.start, piece.end, _STEP_BYTES)
        )
        self._place, self._over = 0, False
        for _ in range(threads):
            worker = threading.Thread(target=self._work, args=(fd,), name="glowplug-ahead", daemon=True)
            if not begin(worker):
                break  # the mapping reads by itself, if slower
            self._workers.append(worker)
        self.most_threads = max(self.most_threads, len(self._workers))

    def reached(self, place: int) -> None:
        """The reader needs nothing of the file before this byte."""
        if self._workers:
            with self._moved:
                self._place = place
                self._moved.notify_all()

    def end(self) -> None:
        """The reader has left the file. Returns when no thread uses its descriptor any more."""
        with self._moved:
            self._over = True
            self._moved.notify_all()
        for worker in self._workers:
            worker.join()
        self._workers = []

    def _work(self, fd: int) -> None:
        while (step := self._next()) is not None:
            start, end = step
            missing = end - start - (resident_bytes(fd, start, end - start) or 0)
            if missing > 0:
                try:
                    os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_WILLNEED)
                except OSError:
                    break  # reading ahead only saves time; the mapping reads by itself
                with self._moved:
                    self.requests += 1
                    self.bytes_asked += missing
        with self._moved:
            self.cpu_s += time.thread_time()

    def _next(self) -> tuple[int, int] | None:
        with self._moved:
            step = next(self._steps, None)
            while step is not None and not self._over and step[0] - self._place > AHEAD_BYTES:
                self._moved.wait()
            return None if self._over else step
