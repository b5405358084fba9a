"""The kernel's page cache: how much of a file lies in it, and files read into it ahead of whoever needs them.

A file in the page cache is read at memory speed. ``warm`` is for an engine that will map a checkpoint's files by itself; a load
that goes through Glowplug reads them once and needs no warming. Nothing here fails: a cache that can't be asked or filled costs
time only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from glowplug.threads import begin
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import Checkpoint, Source

_CACHESTAT = 451  # the same number on every architecture; Linux 6.5
_STEP_BYTES = 8 * MIB
_PIECE_BYTES = 1 * MIB  # stays in the processor's cache, so what is read costs no memory bandwidth twice


class WarmStats(NamedTuple):
    """What warming has done."""

    bytes_read: int
    """From the disk, into the page cache."""
    bytes_there: int
    """Lay there already, as far as the kernel tells."""
    seconds: float
    complete: bool
    """All files were gone through: neither stopped nor out of the bound."""
    problem: str
    """Of the first file that could not be read; empty if there was none."""


def resident_bytes(fd: int, start: int, size_bytes: int) -> int | None:
    """How much of a stretch of an open file lies in the page cache; None where the kernel does not tell.

    Costs some microseconds for each 8 MiB. The answer may be out of date when it arrives.
    """
    if size_bytes <= 0:
        return 0
    with contextlib.suppress(OSError, ValueError):
        pages = _cachestat(fd, start, size_bytes)
        if pages is None:
            pages = _mincore(fd, start, size_bytes)
        if pages is not None:
            return min(size_bytes, pages * mmap.PAGESIZE)
    return None


def warm(
    source: Source,
    checkpoint: Checkpoint,
    *,
    threads: int = 4,
    stop: threading.Event | None = None,
    most_bytes: int | None = None,
) -> WarmStats:
    """Read a local checkpoint's weight files into the page cache, in their order. Blocks until that is done.

    Memory: 1 MiB a thread, besides the cache itself. Of a source that is not local nothing is read.

    Args:
        source: where the files lie.
        checkpoint: which files.
        threads: reading at once.
        stop: ends the work within a few milliseconds of reading.
        most_bytes: go no further than this, counted from the begin, so that a checkpoint larger than the memory does not push its
            own begin out again. None: no bound.
    """
    begun = time.monotonic()
    if not source.is_local:
        return WarmStats(0, 0, 0.0, complete=True, problem="")
    steps = _Steps(source, checkpoint, most_bytes, stop or threading.Event())
    workers = []
    for _ in range(max(0, threads - 1)):
        worker = threading.Thread(target=steps.work, name="glowplug-warm", daemon=True)
        if not begin(worker):
            break
        workers.append(worker)
    steps.work()  # one of them is the caller's own, which is there in any case
    for worker in workers:
        worker.join()
    return WarmStats(steps.bytes_read, steps.bytes_there, time.monotonic() - begun, complete=steps.complete, problem=steps.problem)


class _Steps:
    """The stretches that are still to be read, and what has been."""

    def __init__(self, source: Source, checkpoint: Checkpoint, most_bytes: int | None, stop: threading.Event) -> None:
        self.bytes_read = 0
        self.bytes_there = 0
        self.complete = True
        self.problem = ""
        self._stop = stop
        self._lock = threading.Lock()
        self._left: list[tuple[str, int, int]] = []
        room = most_bytes
        for file in checkpoint.files:
            for start in range(0, file.size_bytes, _STEP_BYTES):
                size = min(_STEP_BYTES, file.size_bytes - start)
                if room is not None:
                    self.complete = self.complete and size <= room
                    size = min(size, room)
                    room -= size
                if size:
                    self._left.append((source.name_of(file), start, size))
        self._left.reverse()

    def work(self) -> None:
        """One thread's life: the next stretch, until there is none."""
        scratch = memoryview(bytearray(_PIECE_BYTES))
        while (step := self._next()) is not None:
            try:
                read, there = self._read(*step, scratch)
            except OSError as error:
                with self._lock:
                    self.problem = self.problem or f"{step[0]}: {error.strerror}"
                    self.complete = False
            else:
                with self._lock:
                    self.bytes_read += read
                    self.bytes_there += there

    def _next(self) -> tuple[str, int, int] | None:
        with self._lock:
            if self._left and self._stop.is_set():
                self.complete = False
                return None
            return self._left.pop() if self._left else None

    def _read(self, path: str, start: int, size: int, scratch: memoryview) -> tuple[int, int]:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = resident_bytes(fd, start, size) or 0
            if there >= size:
                return 0, size
            os.posix_fadvise(fd, start, size, os.POSIX_FADV_WILLNEED)  # large requests, whatever the device's read-ahead is set to
            done = 0
            while done < size and not self._stop.is_set():
                count = os.preadv(fd, [scratch[: size - done]], start + done)
                if not count:
                    break
                done += count
            if done < size:
                self.complete = False
            return max(0, done - there), min(done, there)
        finally:
            os.close(fd)


def _cachestat(fd: int, start: int, size_bytes: int) -> int | None:
    function = _syscall()
    if function is None:
        return None
    stretch = (ctypes.c_uint64 * 2)(start, size_bytes)
    answer = (ctypes.c_uint64 * 5)()
    failed = function(ctypes.c_long(_CACHESTAT), ctypes.c_int(fd), ctypes.byref(stretch), ctypes.byref(answer), ctypes.c_uint(0))
    return None if failed else answer[0]


def _mincore(fd: int, start: int, size_bytes: int) -> int | None:
    """For older kernels. Of a file that we may not write the kernel says that all of it is there, which is the harmless answer."""
    function = _libc_mincore()
    if function is None:
        return None
    first = start - start % mmap.ALLOCATIONGRANULARITY
    length = start + size_bytes - first
    with mmap.mmap(fd, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=first) as mapped:
        begin = ctypes.c_char.from_buffer(mapped)
        try:
            vector = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
            failed = function(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(length), vector)
        finally:
            del begin  # or the map could not be closed
    return None if failed else sum(page & 1 for page in vector)


@functools.cache
def _syscall() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_long
    return function


@functools.cache
def _libc_mincore() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None).mincore
    except (OSError, AttributeError):
        return None
