"""One GET whose answer goes straight into the caller's memory, and which another thread can end at any moment.

For bodies of gigabytes in requests of megabytes. ``http.client`` would do, but for three things: its parser costs a tenth of what
receiving 8 MiB costs, it can't be waited for in small steps, and nobody else can end its wait. So the head of the answer is read
and parsed here, on a connection that ``s3_http.Connections`` made and keeps.

**Few system calls.** A plain socket is read with ``MSG_WAITALL`` in pieces of megabytes, so a thread wakes and takes the
interpreter's lock once a piece and not once a packet. ``SO_RCVTIMEO`` ends each wait after ``TICK_S`` with what came until then:
the caller is asked at least that often whether to go on. Measured on two processors over loopback, in CPU seconds for a GB received
into memory that was touched before: pieces of 8 MiB 0.23, of 1 MiB 0.29, without ``MSG_WAITALL`` 0.25 and 0.28, of 256 KiB 0.39;
the same loop in C 0.21.

This module knows no statuses and no retries: what an answer means is the caller's business.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from typing import TYPE_CHECKING

from glowplug.store.s3_http import Broken

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from glowplug.store.s3_http import Connections

TICK_S = 0.25
"""Longest wait between two calls of ``advance``."""
_HEAD_PIECE_BYTES = 4096
_MOST_HEAD_BYTES = 64 * 1024
_REFUSAL_BYTES = 64 * 1024
_TLS_PIECE_BYTES = 256 * 1024
_TIMEVAL = struct.pack("ll", 0, int(TICK_S * 1_000_000))


class Exchange:
    """A request that is sent when this is entered, and its answer. For one thread, except ``abort``.

    Args:
        connections: to the server.
        target: path and query, quoted.
        headers: all of them, ``Host`` included.
        fresh: take no kept connection.
        connected: given ``abort`` before anything is waited for.
        advance: told of each piece of the body that lies in the caller's memory, and of 0 bytes at least every ``TICK_S`` while
            nothing comes. What it raises ends the exchange.

    Raises:
        ConnectFailed: (when entered) no connection.
        Broken: (when entered) no whole head of an answer came.
    """

    def __init__(
        self,
        connections: Connections,
        target: str,
        headers: Mapping[str, str],
        *,
        fresh: bool,
        connected: Callable[[Callable[[], None]], None],
        advance: Callable[[int], None],
    ) -> None:
        self.status = 0
        self._connections = connections
        path, named = connections.addressed(target, headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._request = f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        self._fresh = fresh
        self._advance = advance
        self._headers: dict[str, str] = {}
        self._rest = b""
        self._unread: int | None = None
        self._keeps = False
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._aborted = False
        self._connection: http.client.HTTPConnection | None = None
        connected(self.abort)

    def __enter__(self) -> Self:
        try:
            used = not self._fresh
            if used:
                self._connection, used = self._connections.take(self._watch)
            else:
                self._connection = self._connections.fresh(self._watch)
            try:
                self._ask()
            except Broken:
                # A kept connection that the server had given up: the normal end of one, no reason to wait.
                if not used or self._rest or self._aborted:
                    raise
                self._connection.close()
                self._connection = self._connections.fresh(self._watch)
                self._ask()
        except BaseException:
            self._leave(reusable=False)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(reusable=kind is None and self._keeps and self._unread == 0)

    def abort(self) -> None:
        """End it: whatever it waits for fails at once. Does nothing once it is left. From any thread."""
        with self._lock:
            self._aborted = True
            if self._sock is not None:
                _shut(self._sock)

    def header(self, name: str) -> str:
        """A header's value, or the empty string. ``name`` in lower case."""
        return self._headers.get(name, "")

    @property
    def length(self) -> int | None:
        """Bytes of the body; None where the answer does not say."""
        return None if "transfer-encoding" in self._headers else _number(self.header("content-length"))

    def fill(self, view: memoryview, most_bytes: int) -> None:
        """Fill the view with the next bytes of the body.

        Args:
            view: where to; no longer than what is left of the body.
            most_bytes: between two calls of ``advance``.

        Raises:
            Broken: the body ends, or the connection breaks, before the view is full; ``advance`` was told of what came.
        """
        sock = self._line()
        size = view.nbytes
        filled = min(len(self._rest), size)
        if filled:
            view[:filled] = self._rest[:filled]
            self._rest = self._rest[filled:]
            self._took(filled)
        receive = _receive
        if isinstance(sock, ssl.SSLSocket):
            receive, most_bytes = _receive_tls, min(most_bytes, _TLS_PIECE_BYTES)
        try:
            while filled < size:
                count = receive(sock, view[filled : filled + most_bytes])
                if count < 0:
                    raise Broken("the answer was cut short")
                filled += count
                self._took(count)
        except OSError as error:
            raise self._connections.broken(error) from error

    def refusal(self) -> bytes:
        """The body of an answer that is an error: what came of it, up to 64 KiB."""
        limit = _REFUSAL_BYTES if self._unread is None else min(self._unread, _REFUSAL_BYTES)
        body, self._rest = self._rest, b""
        with contextlib.suppress(Broken):
            while len(body) < limit and not (self._unread is None and body.endswith(b"0\r\n\r\n")):
                more = self._receive_some()
                if not more:
                    break
                body += more
                self._advance(0)
        if self._unread is not None:
            self._unread -= len(body)
        return body

    def _took(self, count: int) -> None:
        if self._unread is not None:
            self._unread -= count
        self._advance(count)

    def _line(self) -> socket.socket:
        sock = self._connection.sock if self._connection else None
        if sock is None:
            raise Broken("the connection is closed")
        return sock

    def _ask(self) -> None:
        sock = self._line()
        try:
            if isinstance(sock, ssl.SSLSocket):
                sock.settimeout(TICK_S)
            elif sock.gettimeout() is not None:  # else it has carried a request of ours
                sock.settimeout(None)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
            sock.sendall(self._request)
        except OSError as error:
            raise self._connections.broken(error) from error
        self._read_head()

    def _read_head(self) -> None:
        while True:
            while (end := self._rest.find(b"\r\n\r\n")) < 0:
                if len(self._rest) > _MOST_HEAD_BYTES:
                    raise Broken("the answer is not HTTP: its head does not end")
                more = self._receive_some()
                if not more:
                    raise Broken("the server closed the connection without an answer" + self._connections.through)
                self._rest += more
                self._advance(0)  # a head may come byte by byte
            first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
            version, _, rest = first.partition(" ")
            status = _number(rest[:3])
            if not version.startswith("HTTP/1.") or status is None:
                raise Broken("the answer is not HTTP")
            self._rest = self._rest[end + 4 :]
            if status >= 200:
                break
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.status = status
        self._unread = self.length
        self._keeps = version == "HTTP/1.1" and "close" not in self.header("connection").lower()

    def _receive_some(self) -> bytes:
        sock = self._line()
        while True:
            try:
                return sock.recv(_HEAD_PIECE_BYTES)
            except (BlockingIOError, TimeoutError):
                self._advance(0)
            except OSError as error:
                raise self._connections.broken(error) from error

    def _watch(self, sock: socket.socket) -> None:
        with self._lock:
            self._sock = sock
            if self._aborted:
                raise ConnectionAbortedError("ended from outside")

    def _leave(self, *, reusable: bool) -> None:
        with self._lock:
            self._sock = None
            reusable = reusable and not self._aborted
        if self._connection is not None:
            self._connections.give(self._connection, reusable=reusable)
            self._connection = None


def _receive(sock: socket.socket, view: memoryview) -> int:
    """Fill the view, or as much as comes within a tick: 0 if nothing did, -1 at the end."""
    try:
        return sock.recv_into(view, 0, socket.MSG_WAITALL) or -1
    except BlockingIOError:
        return 0


def _receive_tls(sock: socket.socket, view: memoryview) -> int:
    """The same over TLS, where one call gives a record, of 16 KiB or of a single byte."""
    filled, size = 0, view.nbytes
    until_s = time.monotonic() + TICK_S
    try:
        while filled < size:
            count = sock.recv_into(view[filled:])
            if not count:
                return filled or -1
            filled += count
            if time.monotonic() > until_s:
                break
    except TimeoutError:
        pass
    return filled


def _shut(sock: socket.socket) -> None:
    # Not the method of an SSLSocket: that one would make the reading thread take what is left on the line for plain bytes.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
