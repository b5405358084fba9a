"""HTTP to one server: connections that are kept, time-outs, and bodies that go straight where they belong.

The standard library's ``http.client`` is used because it lets the caller read into memory of its own: ``readinto`` ends in
``recv_into`` on the destination, so a byte is copied once, by the kernel (DESIGN 4.1 has the figures). This module knows nothing of
S3: no signature, no error codes, no retries.
"""

from __future__ import annotations

import collections
import functools
import http.client
import select
import socket
import ssl
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glowplug.store.watched_response import WatchedResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from glowplug.store.proxy import Proxy
    from glowplug.store.s3_endpoint import Endpoint

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
"""Longest silence on a connection, not the longest transfer."""
_IDLE_LIMIT_S = 15.0  # Amazon closes an idle connection after about 20 s
_BUSY_S = 0.5
_IDLE_CONNECTIONS = 32
_SEND_BLOCK_BYTES = 1 << 20


BODY_ERRORS = (OSError, http.client.HTTPException)
"""What reading a body may raise when the connection breaks."""


class ConnectFailed(Exception):
    """No connection: the server has seen nothing of the request.

    Attributes:
        is_final: another attempt would end the same way.
        timed_out: nobody answered at all.
    """

    def __init__(self, cause: OSError | http.client.HTTPException, through: str = "") -> None:
        super().__init__(describe(cause) + through)
        self.is_final = isinstance(cause, ssl.SSLCertVerificationError)
        self.timed_out = isinstance(cause, TimeoutError)


class Broken(Exception):
    """The connection broke after the request, or a part of it, was sent: the server may have acted on it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, signed already."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Iterable[memoryview] = b""
    """An iterable is sent piece by piece; ``headers`` must then hold ``Content-Length``."""


class Reply:
    """A server's answer whose body is yet to be read. To be used by one thread, inside ``Connections.exchange``."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status

    def header(self, name: str) -> str:
        """A header's value, or the empty string."""
        return self._response.getheader(name) or ""

    def fill(self, view: memoryview) -> int:
        """Read into ``view`` until it is full or the body ends; returns the bytes read."""
        filled = 0
        while filled < view.nbytes:
            count = self._response.readinto(view[filled:])
            if not count:
                break
            filled += count
        return filled

    def read(self, limit_bytes: int | None = None) -> bytes:
        """The body, or as much as the limit allows. A body shorter than announced raises."""
        return self._response.read(limit_bytes)

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request: the body has been read to its end and the server keeps it open."""
        return self._response.isclosed() and not self._response.will_close


class _Connection(http.client.HTTPConnection):
    """Sends a request's head together with the beginning of its body.

    Apart, a writer that is killed between the two has ended its request in good order for a server that does not count: SeaweedFS
    4.48 then keeps an empty object.

    Attributes:
        head_waits: what is sent next is a head, and a body follows.
    """

    head_waits = False
    _head = b""

    def send(self, data: Any) -> None:
        """See the standard library's."""
        if self.head_waits:
            self.head_waits, self._head = False, bytes(data)
            return
        if self._head:
            data, self._head = b"".join((self._head, data)), b""
        super().send(data)


class Connections:
    """Kept connections to one endpoint, for any number of threads; at most one request at a time on each.

    Idle ones are kept for 15 s, 32 at most, and closed when this object goes.

    Args:
        endpoint: the server.
        tls: for https; None for http.
        proxy: or None.
    """

    def __init__(self, endpoint: Endpoint, *, tls: ssl.SSLContext | None, proxy: Proxy | None = None) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._proxy = proxy
        self.through = proxy.through if proxy else ""
        self._idle: collections.deque[tuple[float, http.client.HTTPConnection]] = collections.deque()
        weakref.finalize(self, _close_all, self._idle)

    def take(self, announce: Callable[[socket.socket], None] | None = None) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it has been used before.

        Args:
            announce: as for ``fresh``.

        Raises:
            ConnectFailed: refused, no such host, no answer, or no trust in its certificate.
        """
        while True:
            try:
                since_s, connection = self._idle.pop()
            except IndexError:
                return self.fresh(announce), False
            idle_s = time.monotonic() - since_s
            # Who watches its requests sends a GET, which is sent again if the connection has just ended.
            if idle_s < _IDLE_LIMIT_S and ((announce and idle_s < _BUSY_S) or not _has_ended(connection.sock)):
                try:
                    if announce:
                        announce(connection.sock)
                except OSError as error:
                    connection.close()
                    raise ConnectFailed(error, self.through) from error
                return connection, True
            connection.close()

    def give(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
        """Hand a connection back after its reply was read."""
        if reusable and len(self._idle) < _IDLE_CONNECTIONS:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.close()

    def send(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        """Send a request and wait for the head of its answer.

        Raises:
            Broken: no whole answer came.
        """
        target, headers = self.addressed(request.target, request.headers)
        if isinstance(connection, _Connection):
            connection.head_waits = bool(request.body) and request.headers.get("Content-Length") != "0"
        try:
            try:
                connection.request(request.method, target, body=request.body or None, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses a large body answers and closes before it has read it all: the answer says why.
                return Reply(connection.getresponse())
            return Reply(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            raise self.broken(error) from error

    def broken(self, error: OSError | http.client.HTTPException) -> Broken:
        """What an error of a connection in use means."""
        return Broken(describe(error) + self.through)

    def addressed(self, target: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Target and headers as they go on the wire: a proxy for plain HTTP wants the whole URL."""
        if self._proxy and not self._endpoint.https:
            return self._endpoint.origin + target, dict(headers) | self._proxy.authorization
        return target, dict(headers)

    def fresh(self, announce: Callable[[socket.socket], None] | None = None) -> http.client.HTTPConnection:
        """A new connection.

        Args:
            announce: told of each socket before anything is waited for on it, so that another thread can shut it down. May raise
                OSError to call the connection off.

        Raises:
            ConnectFailed: as for ``take``.
        """
        host, port = self._endpoint.host, self._endpoint.port
        if self._proxy:
            host, port = self._proxy.host, self._proxy.port
        connection = _Connection(host, port, timeout=CONNECT_TIMEOUT_S, blocksize=_SEND_BLOCK_BYTES)
        connection.auto_open = 0  # never again by itself, without TLS
        connection.response_class = functools.partial(WatchedResponse, window_s=READ_TIMEOUT_S)  # type: ignore[assignment]
        if self._proxy and self._tls:
            connection.set_tunnel(self._endpoint.host, self._endpoint.port, headers=self._proxy.authorization)
        if announce:
            # The standard library keeps this as an attribute so that it can be replaced.
            connection._create_connection = functools.partial(_dial, announce)  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            connection.connect()
            if self._tls:
                connection.sock = self._tls.wrap_socket(
                    connection.sock, server_hostname=self._endpoint.host, do_handshake_on_connect=False
                )
                if announce:
                    announce(connection.sock)
                connection.sock.do_handshake()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectFailed(error, self.through) from error
        connection.sock.settimeout(READ_TIMEOUT_S)
        return connection

    def close(self) -> None:
        """Close what is idle. Connections in use are closed by those who use them."""
        _close_all(self._idle)


def _dial(
    announce: Callable[[socket.socket], None],
    address: tuple[str, int],
    timeout: float,
    source_address: tuple[str, int] | None = None,
) -> socket.socket:
    """``socket.create_connection``, but each socket is told of before it connects."""
    failure: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            if source_address:
                sock.bind(source_address)
            announce(sock)
            sock.connect(place)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    try:
        raise failure or OSError("the host name has no address")
    finally:
        failure = None  # a frame and its own error would keep each other alive, and the callers' buffers with them


def describe(error: OSError | http.client.HTTPException) -> str:  # noqa: PLR0911  a table, one line an error
    """A connection's failure in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"the host name can't be resolved: {error.strerror}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut short"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"the answer is not HTTP: {type(error).__name__} {error}"


def tls_context(ca_bundle: str | None, *, fallback_bundle: str) -> ssl.SSLContext:
    """Trust the bundle, else the system's certificates, else (a slim image has none) those that come with botocore.

    Raises:
        OSError: the bundle can't be read, or holds no certificate.
    """
    if ca_bundle:
        return ssl.create_default_context(cafile=ca_bundle)
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        context.load_verify_locations(cafile=fallback_bundle)
    return context


def _has_ended(sock: socket.socket) -> bool:
    """Whether the server has closed an idle connection: nothing else can be readable on it."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _close_all(idle: collections.deque[tuple[float, http.client.HTTPConnection]]) -> None:
    while idle:
        idle.pop()[1].close()
