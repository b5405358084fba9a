"""A proxy in front of a real S3 server that does to single requests what networks and servers do: for tests of faults.

Every request is forwarded to the server as it came, ``Host`` included, so signatures stay valid; what the server answers goes back
as it came. Before or after that the proxy does what a rule tells it for this very request, and it writes down every one. It
carries out those of ``range_faults`` that need no knowledge of ranges, and three that can only happen to somebody who writes: an
answer that comes late, or is lost although the write was done, and two requests that change places.

    with StoreProxy(seaweedfs.port, rule=on(LOST, "PUT", "/latest")) as proxy:
        env = seaweedfs.env | proxy.env

Plain HTTP, one thread for each connection, bodies whole in memory.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from testbed.range_faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from io import BufferedReader
    from types import TracebackType

HOST = "127.0.0.1"
_TIMEOUT_S = 60.0
_JOIN_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Call:
    """A request, as a rule sees it.

    Attributes:
        number: of all requests, from 1, in the order in which they came.
        number_of_key: the same, of this method on this key.
        method: in capitals.
        path: unquoted, with the bucket.
        query: as it came.
        headers: names in lower case.
    """

    number: int
    number_of_key: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)


DELAY = Fault("delay")
LOST = Fault("lost")
RESET_AT_ONCE = Fault("reset", share=0.0)

Rule: TypeAlias = "Callable[[Call], Fault | None]"
"""Decides for each request; called from the connection's thread, one at a time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came, and what became of it."""

    call: Call
    fault: Fault | None
    status: int = 0
    """What the server answered; 0 if it was not asked, or has not answered yet."""


def on(fault: Fault, method: str = "", path_end: str = "", *, numbers: Collection[int] = (1,)) -> Rule:
    """The fault for a request with this method (any if empty) whose path ends so, the n-th of its kind for each key.

    Args:
        fault: to do.
        method: HTTP method.
        path_end: end of the path, or any part of it that begins and ends with ``/``.
        numbers: which ones, from 1; empty for all.
    """

    def rule(call: Call) -> Fault | None:
        place = path_end in call.path if path_end.endswith("/") else call.path.endswith(path_end)
        fits = place and method in {"", call.method} and (not numbers or call.number_of_key in numbers)
        return fault if fits else None

    return rule


class StoreProxy:
    """Listens on 127.0.0.1 while it is entered.

    Args:
        port: of the server, on this machine.
        rule: what to do wrong; may be replaced while it runs.
    """

    def __init__(self, port: int, *, rule: Rule | None = None) -> None:
        self.rule = rule
        self._server_port = port
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._stopped = False

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            still_open, threads = list(self._open), list(self._threads)
        for sock in (self._listener, *still_open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_JOIN_TIMEOUT_S)
        self._listener.close()

    @property
    def env(self) -> dict[str, str]:
        """The variable that sends a client here; put it over the server's own."""
        return {"AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}"}

    @property
    def seen(self) -> list[Seen]:
        """Every request so far, in the order in which they came."""
        with self._changed:
            return list(self._seen)

    def forget(self, rule: Rule | None = None) -> None:
        """Begin to count anew, with another rule."""
        with self._changed:
            self._seen.clear()
            self._counts.clear()
            self.rule = rule

    # --- connections

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                target(*arguments)
            finally:
                with self._changed:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="store-proxy", daemon=True)
        with self._changed:
            self._threads.add(thread)
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                if self._stopped:
                    sock.close()
                    return
                self._open.add(sock)
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream = http.client.HTTPConnection(HOST, self._server_port, timeout=_TIMEOUT_S)
        try:
            with contextlib.suppress(OSError, http.client.HTTPException), sock.makefile("rb") as stream:
                while (request := _read(stream)) is not None and self._answer(sock, upstream, request):
                    pass
        finally:
            upstream.close()
            with self._changed:
                self._open.discard(sock)
            sock.close()

    # --- one request

    def _answer(self, sock: socket.socket, upstream: http.client.HTTPConnection, request: _Request) -> bool:
        """Do with a request what the rule says. Whether the connection goes on."""
        index, fault = self._note(request)
        kind = fault.kind if fault else None
        if fault is not None and kind in {"drop", "silent", "status"}:
            return self._refuse(sock, fault, request)
        if fault is not None and kind in {"delay", "hold"}:
            self._wait(fault)
        status, head, body = _forward(upstream, request)
        with self._changed:
            if index < len(self._seen):  # else it has been told to forget meanwhile
                self._seen[index] = replace(self._seen[index], status=status)
            self._changed.notify_all()
        if fault is not None and kind == "lost":
            return False
        if fault is not None and kind == "corrupt" and body:
            at = min(len(body) - 1, int(len(body) * fault.share))
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        if fault is not None and kind in {"reset", "short"}:
            sock.sendall((head + body)[: len(head) + int(len(body) * fault.share)] if fault.share else b"")
            if kind == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        sock.sendall(head + body)
        return request.headers.get("connection", "").lower() != "close"

    def _note(self, request: _Request) -> tuple[int, Fault | None]:
        with self._changed:
            name = (request.method, request.path)
            self._counts[name] = self._counts.get(name, 0) + 1
            call = Call(len(self._seen) + 1, self._counts[name], request.method, request.path, request.query, dict(request.headers))
            fault = self.rule(call) if self.rule else None
            self._seen.append(Seen(call, fault))
            return len(self._seen) - 1, fault

    def _refuse(self, sock: socket.socket, fault: Fault, request: _Request) -> bool:
        if fault.kind == "silent":
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, _TIMEOUT_S)
            return False
        if fault.kind == "drop":
            return False
        text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>on purpose</Message></Error>".encode()
        head = f"HTTP/1.1 {fault.status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n".encode()
        sock.sendall(head if request.method == "HEAD" else head + text)
        return True

    def _wait(self, fault: Fault) -> None:
        method, path_end = fault.after

        def over() -> bool:
            other = fault.kind == "hold" and any(
                seen.status and seen.call.method == method and seen.call.path.endswith(path_end) for seen in self._seen
            )
            return self._stopped or other

        end_s = time.monotonic() + fault.seconds
        with self._changed:
            self._changed.wait_for(over, max(0.0, end_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    lines: tuple[tuple[str, str], ...]
    """Headers as they came."""
    headers: Mapping[str, str]
    """The same, names in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> str:
        return urlsplit(self.target).query


def _read(stream: BufferedReader) -> _Request | None:
    """The next request of a connection; None at its end."""
    first = stream.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    lines: list[tuple[str, str]] = []
    while line := stream.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        lines.append((name, value.strip()))
    headers = {name.lower(): value for name, value in lines}
    size = int(headers.get("content-length", 0))
    body = stream.read(size)
    return _Request(first[0], first[1], tuple(lines), headers, body) if len(body) == size else None


def _forward(upstream: http.client.HTTPConnection, request: _Request) -> tuple[int, bytes, bytes]:
    """Status, head and body of what the server answers."""
    upstream.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
    for name, value in request.lines:
        if name.lower() != "connection":
            upstream.putheader(name, value)
    upstream.endheaders(request.body or None)
    response = upstream.getresponse()
    body = response.read()
    kept = [(name, value) for name, value in response.getheaders() if name.lower() not in {"transfer-encoding", "connection"}]
    if "content-length" not in {name.lower() for name, _ in kept}:
        kept.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in kept)
    return response.status, f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode("latin-1"), body
