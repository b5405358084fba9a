"""A part of a file as the body of a request: read block by block while it is sent, as often as it has to be sent again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.errors import LocalError
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = MIB


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A part of a file as a request's body. Each iteration starts over, with one block of its own.

    Iterating raises ``LocalError``, never ``OSError``: that would look like a broken connection, worth another attempt.
    """

    fd: int
    path: str
    """For messages."""
    start: int
    size_bytes: int

    def __iter__(self) -> Iterator[memoryview]:
        block = memoryview(bytearray(min(_BLOCK_BYTES, max(self.size_bytes, 1))))
        sent = 0
        while sent < self.size_bytes:
            want = min(block.nbytes, self.size_bytes - sent)
            try:
                count = os.preadv(self.fd, [block[:want]], self.start + sent)
            except OSError as error:
                raise LocalError(f"the file can't be read: {error.strerror}", object=self.path) from error
            if not count:
                text = f"{self.path} became shorter than {self.start + self.size_bytes} bytes while it was sent"
                raise LocalError(text, object=self.path)
            yield block[:count]
            sent += count

    def sha256(self) -> str:
        """Hex digest of the slice."""
        digest = hashlib.sha256()
        for block in self:
            digest.update(block)
        return digest.hexdigest()
