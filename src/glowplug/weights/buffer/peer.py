"""One rank's connection, as the process that streams sees it: lines in, lines out, never waiting."""

from __future__ import annotations

import contextlib
import socket
import struct

_MOST_LINE_BYTES = 64 * 1024


class Peer:
    """A connection that does not block.

    Args:
        connection: accepted; stays the caller's to close.

    Attributes:
        outbox: what the rank has not taken yet.
        sent: the newest position that it was told.
        is_reader: it was given the buffer, and is not done.
        is_told: it knows that the load failed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._inbox = b""
        self.outbox = bytearray()
        self.sent = 0
        self.is_reader = False
        self.is_told = False

    def user(self) -> int:
        """Number of the user at the other end, as the kernel knows it."""
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])

    def read(self) -> list[bytes]:
        """The lines that have come.

        Raises:
            EOFError: the rank has closed.
            ValueError: a line longer than any rank sends.
        """
        try:
            chunk = self.socket.recv(_MOST_LINE_BYTES)
        except BlockingIOError:
            return []
        if not chunk:
            raise EOFError
        *lines, self._inbox = (self._inbox + chunk).split(b"\n")
        if len(self._inbox) > _MOST_LINE_BYTES:
            raise ValueError
        return lines

    def send(self, line: bytes, descriptors: list[int] | None = None) -> None:
        """Write a line as far as the rank takes it; the rest waits in ``outbox`` for ``flush``.

        Raises:
            OSError: the rank has gone.
        """
        if descriptors:  # the first thing that is ever written here, so there is room for it
            line = line[socket.send_fds(self.socket, [line], descriptors) :]
        self.outbox += line

    def flush(self) -> None:
        """Write what is owed, as far as the rank takes it.

        Raises:
            OSError: the rank has gone.
        """
        with contextlib.suppress(BlockingIOError):
            while self.outbox:
                del self.outbox[: self.socket.send(self.outbox)]
