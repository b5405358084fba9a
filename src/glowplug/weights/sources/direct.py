"""When to read a local file past the page cache (``O_DIRECT``), and how.

Measured on a virtual NVMe disk, ext4, Linux 6.18, two processors, 1 GiB that is not in the page cache, ranges of 8 MiB by 2 to 8
threads: on the idle machine 1.2-2.5 GB/s and 0.22-0.73 s of processor time through the page cache, 3.2 GB/s and 0.03-0.04 s past
it; beside other work on both processors 1.6 GB/s and 0.53 s against 1.8 GB/s and 0.08 s (medians of 7). At that time an engine is
importing, and wants the processors. What *is* in the page cache comes from there at up to 15 GB/s. Reading past the cache leaves it
empty, so the next start on the node reads the disk again, which is worth it only where the disk is fast. So by default a range goes
past the cache if it is not in it already, and the disk has not turned out to be slow.

The kernel wants buffer, offset and length to be multiples of the disk's block. The ragged ends of a range go through the page
cache. Where the buffer's address does not fit the offset, the bytes take a detour through 1 MiB of scratch memory of the thread:
1.4 GB/s and 0.15 s in the second measurement above.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

Direct = Literal["auto", "always", "never"]

ALIGNMENT_BYTES: Final = 4096
"""Fits disks with blocks of 512 and of 4096 bytes."""

LEAST_BYTES: Final = 1 * MIB
"""A shorter stretch is not worth a second descriptor."""

SLOW_BYTES_PER_S: Final = 1_000_000_000
"""A disk below this is what limits a load, and then the page cache costs nothing and helps the next start."""

_SCRATCH_BYTES = 1 * MIB
_JUDGED_AFTER_BYTES = 256 * MIB
_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP}  # tmpfs before Linux 6.6, FUSE, some network file systems


class DirectReading:
    """Decides for one source, from what its disk and its file system have shown so far. Thread-safe."""

    def __init__(self, mode: Direct) -> None:
        self.mode: Final = mode
        self._refused = False
        self._slow = False
        self._lock = threading.Lock()
        self._local = threading.local()
        self._running = 0
        self._since = 0.0
        self._busy_s = 0.0
        self._bytes = 0

    @property
    def may(self) -> bool:
        """Whether to try at all."""
        return self.mode != "never" and not self._refused and (self.mode == "always" or not self._slow)

    @property
    def asks(self) -> bool:
        """Whether what lies in the page cache is to be taken from there."""
        return self.mode == "auto"

    def open(self, path: str) -> int | None:
        """A descriptor that reads past the page cache; None where the file system has no such thing."""
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            self._refused = True
            return None

    def refused(self, error: OSError) -> bool:
        """Whether a read failed because the file system can't, which is remembered, or for another reason."""
        if error.errno in _REFUSED:
            self._refused = True
            return True
        return False

    @contextmanager
    def timed(self, size_bytes: int) -> Iterator[None]:
        """Around a read; the time in which at least one runs tells how fast the disk is."""
        now = time.monotonic()
        with self._lock:
            if not self._running:
                self._since = now
            self._running += 1
        try:
            yield
        finally:
            now = time.monotonic()
            with self._lock:
                self._running -= 1
                self._busy_s += now - self._since
                self._since = now
                self._bytes += size_bytes
                if self._bytes >= _JUDGED_AFTER_BYTES:
                    self._slow = self._bytes < SLOW_BYTES_PER_S * self._busy_s

    def scratch(self) -> memoryview:
        """A page-aligned buffer of the calling thread."""
        found: memoryview | None = getattr(self._local, "scratch", None)
        if found is None:
            found = self._local.scratch = memoryview(mmap.mmap(-1, _SCRATCH_BYTES))
        return found


def stretch(size_bytes: int, offset: int) -> tuple[int, int]:
    """The part of a range that can be read past the page cache, as begin and end in it; empty if it is not worth it."""
    head = -offset % ALIGNMENT_BYTES
    if size_bytes - head < LEAST_BYTES:
        return 0, 0
    return head, size_bytes - (offset + size_bytes) % ALIGNMENT_BYTES


def is_aligned(view: memoryview) -> bool:
    """Whether the kernel can read past the page cache straight into this writable buffer."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % ALIGNMENT_BYTES == 0
