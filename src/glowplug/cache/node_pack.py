"""A pack of the node's own: checked before it is used, and kept while it is fetched.

Nothing here decides what is kept or used; ``node_store`` does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.fetch import RANGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.cache.node_folder import Filling, NodeFolder

_IDLE_S = 60.0
"""A pack of which nothing more has come for so long is given up."""


@dataclass(frozen=True, slots=True)
class Check:
    """A pack on the node whose whole content had the right digest. Each range's own digest tells whether that is still so.

    Attributes:
        size_bytes: of the pack.
        ranges: digests, of ``RANGE_BYTES`` each but the last.
    """

    size_bytes: int
    ranges: tuple[bytes, ...]

    def read(self, folder: NodeFolder, name: str, start: int, buffer: memoryview) -> bool:
        """Fill the buffer; False for a range that was not checked as such, or is no longer what it was."""
        whole = len(buffer) == RANGE_BYTES or start + len(buffer) == self.size_bytes
        if start % RANGE_BYTES or not whole or not 0 < len(buffer) <= RANGE_BYTES:
            return False
        descriptor = folder.open_file("packs", name)
        if descriptor is None:  # evicted since
            return False
        try:
            filled = _read(descriptor, start, buffer)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return filled == len(buffer) and _digest(buffer) == self.ranges[start // RANGE_BYTES]


class Fill:
    """A pack that is kept on its way to the restore.

    Args:
        filling: where it is written.
        sha256: what its digest must be.
        done: called once it can be seen.
    """

    def __init__(self, filling: Filling, sha256: str, *, done: Callable[[], None]) -> None:
        self._filling = filling
        self._sha256 = sha256
        self._done = done
        self._left_bytes = filling.size_bytes
        self._news = threading.Condition()
        self._broken = False

    def write(self, start: int, data: memoryview) -> None:
        """Take a range. Raises nothing: what fails is not kept."""
        with self._news:
            if self._broken or start + len(data) > self._filling.size_bytes:
                return
            try:
                self._filling.write(start, data)
            except OSError:
                self._broken = True
            self._left_bytes -= len(data)
            self._news.notify()

    def run(self) -> None:
        """A thread's life: wait for all of it, check it, and let it be seen. Ends as well when nothing more comes."""
        with self._news:
            while self._left_bytes > 0 and not self._broken:
                if not self._news.wait(_IDLE_S):
                    self._broken = True  # the restore was called off
        if not self._broken:
            with contextlib.suppress(OSError):
                if _sha256(self._filling.descriptor) == self._sha256:
                    self._filling.install()
                    self._done()
                    return
        self._filling.abandon()


def check_pack(folder: NodeFolder, name: str) -> Check | None:
    """Read the node's pack to its end; None where it has none, or another than its name says, which is removed."""
    descriptor = folder.open_file("packs", name)
    if descriptor is None:
        return None
    buffer, whole, ranges, size_bytes = memoryview(bytearray(RANGE_BYTES)), hashlib.sha256(), [], 0
    try:
        while count := _read(descriptor, size_bytes, buffer):
            whole.update(buffer[:count])
            ranges.append(_digest(buffer[:count]))
            size_bytes += count
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if name == f"{whole.hexdigest()}.tar.zst":
        return Check(size_bytes, tuple(ranges))
    folder.drop("packs", name)
    return None


def _read(descriptor: int, start: int, buffer: memoryview) -> int:
    filled = 0
    while filled < len(buffer) and (count := os.preadv(descriptor, [buffer[filled:]], start + filled)):
        filled += count
    return filled


def _digest(data: memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _sha256(descriptor: int) -> str:
    buffer, digest, start = memoryview(bytearray(RANGE_BYTES)), hashlib.sha256(), 0
    while count := _read(descriptor, start, buffer):
        digest.update(buffer[:count])
        start += count
    return digest.hexdigest()
