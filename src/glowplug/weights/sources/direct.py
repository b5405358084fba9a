"""When to read a local file past the page cache (``O_DIRECT``), and how.

Measured on a virtual NVMe disk, ext4, Linux 6.18, two processors, a file of 1 GiB that is not in the page cache, ranges of 8 MiB by
4 to 16 threads: 1.2-2.5 GB/s and 0.22-0.73 s of processor time through the page cache, 3.2 GB/s and 0.03-0.04 s past it. A file
that *is* in the page cache comes from there at 15 GB/s. Reading past the cache leaves it empty, so the next start on the node reads
the disk again: that is worth it only where the disk is fast. So by default a range goes past the cache if it is not in it already
and the disk has not turned out to be slow.

The kernel wants buffer, offset and length to be multiples of the disk's block. A buffer is given to us, so it fits only if its
address and the offset in the file leave the same remainder; if they do, the ragged ends go through the page cache.
"""

from __future__ import annotations

import ctypes
import errno
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
"""Fits disks with blocks of 512 and of 4096 bytes. Of a buffer's address and an offset in a file, the remainders must agree."""

LEAST_BYTES: Final = 1 * MIB
"""A shorter stretch is not worth a second descriptor."""

SLOW_BYTES_PER_S: Final = 1_000_000_000
"""A disk below this is what limits a load, and then the page cache costs nothing and helps the next start."""

_JUDGED_AFTER_BYTES = 256 * MIB
_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP}  # tmpfs before Linux 6.6, FUSE, some network file systems


class DirectReading:
    """Decides for one source, from what its disk and its file system have shown so far. Thread-safe."""

    def __init__(self, mode: Direct) -> None:
        self._mode = mode
        self._refused = False
        self._slow = False
        self._lock = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._busy_s = 0.0
        self._bytes = 0

    @property
    def may(self) -> bool:
        """Whether to try at all."""
        return self._mode != "never" and not self._refused and (self._mode == "always" or not self._slow)

    @property
    def asks(self) -> bool:
        """Whether what lies in the page cache is to be taken from there."""
        return self._mode == "auto"

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


def stretch(view: memoryview, offset: int) -> tuple[int, int]:
    """The part of a buffer that can be read past the page cache, as begin and end in it; empty if none can.

    Args:
        view: writable bytes.
        offset: in the file, of the view's first byte.
    """
    size = view.nbytes
    head = -offset % ALIGNMENT_BYTES
    if size - head < LEAST_BYTES or (_address(view) - offset) % ALIGNMENT_BYTES:
        return 0, 0
    return head, size - (offset + size) % ALIGNMENT_BYTES


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
