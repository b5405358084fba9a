"""One connection of the range server: reads requests, answers them, and does on purpose what it is told to do wrong.

It is written on bare sockets because of what it must do: send a body by ``sendfile``, stop in its middle, or end in a reset.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from testbed import range_objects
from testbed.range_faults import Call, Chooser, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.range_bandwidth import Bandwidth
    from testbed.range_objects import Object, Objects
    from testbed.range_stats import Counters

_MOST_HEAD_BYTES = 64 * 1024
_COPY_BYTES = 256 * 1024
_LAST_BYTES = 1024
_CHUNK_BYTES = 16 * 1024
_CHUNKED = {"chunked", "chunked-with-length"}
_SWAP = bytes(255 - byte for byte in range(256))
"""What makes other bytes of the object that has changed."""


@dataclass
class Behaviour:
    """How a server answers; may be changed while it runs, and counts from the next request on.

    Attributes:
        faults: what to do wrong; None for nothing.
        bandwidth: that all connections share.
        latency_s: before each answer.
        access_key: the only one that is accepted, as far as it is named: signatures are never checked. None: anybody.
    """

    faults: Chooser | None
    bandwidth: Bandwidth
    latency_s: float
    access_key: str | None


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""


class _Ended(Exception):
    """The connection is over."""


class Connection:
    """Answers what comes over one socket until it ends. For one thread.

    Args:
        sock: connected, blocking, without a time-out; TLS is already agreed on.
        objects: what there is.
        behaviour: how to answer.
        counters: told of all that happens.
    """

    def __init__(self, sock: socket.socket, objects: Objects, behaviour: Behaviour, counters: Counters) -> None:
        self._sock = sock
        self._objects = objects
        self._behaviour = behaviour
        self._counters = counters
        self._received = b""
        self._is_running = False
        """A request for an object has begun, and the last bytes of its answer are not yet sent."""

    def serve(self) -> None:
        """Return when the connection is over, whoever ended it."""
        with contextlib.suppress(_Ended, OSError):
            while True:
                request = self._read_request()
                self._counters.request()
                self._answer(request)
                if request.headers.get("connection", "").lower() == "close":
                    return

    def _read_request(self) -> _Request:
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            more = self._sock.recv(65536)
            if not more or len(self._received) > _MOST_HEAD_BYTES:
                raise _Ended
            self._received += more
        head, self._received = self._received[:end].decode("latin-1"), self._received[end + 4 :]
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body_bytes = int(headers.get("content-length", 0))
        while len(self._received) < body_bytes:
            more = self._sock.recv(65536)
            if not more:
                raise _Ended
            self._received += more
        self._received = self._received[body_bytes:]
        url = urlsplit(target)
        return _Request(method, unquote(url.path), dict(parse_qsl(url.query, keep_blank_values=True)), headers)

    def _answer(self, request: _Request) -> None:
        if request.path == "/_stats":
            return self._reply(200, json.dumps(self._counters.stats().as_json()), kind="application/json")
        if request.path == "/_reset":
            self._counters.reset()
            return self._reply(200, "{}", kind="application/json")
        return self._answer_s3(request)

    def _answer_s3(self, request: _Request) -> None:
        bucket, _, key = request.path.lstrip("/").partition("/")
        if request.method not in {"GET", "HEAD"}:
            return self._error(501, "NotImplemented", request)
        if not self._may_read(request):
            return self._error(403, "InvalidAccessKeyId", request)
        if not self._objects.has_bucket(bucket):
            return self._error(404, "NoSuchBucket", request)
        if key:
            self._counters.begun()
            self._is_running = True
            try:
                return self._answer_object(request, bucket, key)
            finally:
                self._end_request()
        return self._answer_bucket(request, bucket)

    def _answer_bucket(self, request: _Request, bucket: str) -> None:
        if request.method == "HEAD":
            return self._head(200, {"Content-Length": "0", "x-amz-bucket-region": "us-east-1"})
        if "location" in request.query:
            return self._reply(200, range_objects.location())
        return self._reply(200, self._objects.listing(bucket, request.query))

    def _may_read(self, request: _Request) -> bool:
        wanted = self._behaviour.access_key
        named = request.headers.get("authorization", "") + request.query.get("X-Amz-Credential", "")
        return wanted is None or f"{wanted}/" in named

    def _answer_object(self, request: _Request, bucket: str, key: str) -> None:
        numbers = self._counters.numbers(f"{bucket}/{key}")
        if self._behaviour.latency_s:
            time.sleep(self._behaviour.latency_s)
        found = self._objects.find(bucket, key)
        if found is None:
            return self._error(404, "NoSuchKey", request)
        text = request.headers.get("range", "")
        start, end = _range(text, found.size_bytes)
        call = Call(*numbers, request.method, bucket, key, start, end, bool(text), request.headers)
        fault = self._behaviour.faults(call) if self._behaviour.faults else None
        if fault is not None:
            self._counters.fault(fault.kind)
            if fault.kind == "drop":
                raise _Ended
            if fault.kind == "silent":
                self._wait_for_end()
            if fault.kind == "status":
                return self._error(fault.status, fault.code, request)
        etag = f'"{"0" * 31}{numbers[0] % 10}"' if fault and fault.kind == "changed" else found.etag
        if request.headers.get("if-match", etag) not in {etag, "*"}:
            return self._error(412, "PreconditionFailed", request)
        if request.headers.get("if-none-match", "") in {etag, "*"}:
            return self._head(304, {"ETag": etag})
        if start >= end and text:
            return self._error(416, "InvalidRange", request)
        return self._send_object(request, found._replace(key=f"{bucket}/{key}", etag=etag), (start, end) if text else None, fault)

    def _send_object(self, request: _Request, found: Object, asked: tuple[int, int] | None, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind == "whole":
            asked = None
        if kind == "wrong-range" and asked:
            asked = _another_range(*asked, found.size_bytes)
        start, end = asked or (0, found.size_bytes)
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": found.etag,
            "Last-Modified": found.last_modified,
        }
        if kind != "chunked":
            headers["Content-Length"] = str(end - start)
        if kind in _CHUNKED:
            headers["Transfer-Encoding"] = "chunked"
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size_bytes}"
        if request.method == "HEAD" or start == end:
            self._end_request()
        self._head(206 if asked else 200, headers)
        if request.method != "HEAD":
            self._send_body(found, start, end, fault)

    def _send_body(self, found: Object, start: int, end: int, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        until = start + int((end - start) * fault.share) if fault else end
        with open(found.path, "rb") as file:
            if fault is None or kind in {"whole", "wrong-range"}:
                self._send(found.key, file.fileno(), start, end, last=end)
            elif kind == "changed":
                self._send(found.key, file.fileno(), start, end, last=end, table=_SWAP)
            elif kind in _CHUNKED:
                self._send_chunks(found.key, file.fileno(), start, end)
            elif kind == "corrupt":
                self._send(found.key, file.fileno(), start, until, last=end)
                self._send(found.key, file.fileno(), until, until + 1, last=end, table=_SWAP)
                self._send(found.key, file.fileno(), until + 1, end, last=end)
            else:
                self._send(found.key, file.fileno(), start, until, last=end)
                self._break_off(found.key, file.fileno(), until, end, fault)

    def _send_chunks(self, name: str, fd: int, start: int, end: int) -> None:
        for begin in range(start, end, _CHUNK_BYTES):
            until = min(begin + _CHUNK_BYTES, end)
            self._sock.sendall(b"%x\r\n" % (until - begin))
            self._send(name, fd, begin, until, last=end)
            self._sock.sendall(b"\r\n")
        self._sock.sendall(b"0\r\n\r\n")

    def _break_off(self, name: str, fd: int, start: int, end: int, fault: Fault) -> None:
        if fault.kind == "reset":
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault.kind == "stall":
            self._wait_for_end()
        if fault.kind == "drip":
            for position in range(start, end):
                self._send(name, fd, position, position + 1, last=end)
                self._wait_for_end(1 / fault.bytes_per_s)
        raise _Ended

    def _send(self, name: str, fd: int, start: int, end: int, *, last: int, table: bytes | None = None) -> None:
        """Send these bytes of a file, each swapped by the table if there is one; ``last`` is where the answer ends."""
        bandwidth = self._behaviour.bandwidth
        direct = table is None and not isinstance(self._sock, ssl.SSLSocket)
        most = bandwidth.slice_bytes if direct else min(bandwidth.slice_bytes, _COPY_BYTES)
        while start < end:
            # The last bytes go alone, so that all else is done before a client can have received them.
            size = min(most, end - start - _LAST_BYTES if end - start > _LAST_BYTES else end - start)
            bandwidth.take(size)
            self._counters.sent(name, size)
            if start + size == last:
                self._end_request()
            sent = 0
            try:
                sent = self._send_piece(fd, start, size, table, direct=direct)
            finally:
                self._counters.sent(name, sent - size)
            start += sent

    def _send_piece(self, fd: int, start: int, size: int, table: bytes | None, *, direct: bool) -> int:
        if direct:
            sent = os.sendfile(self._sock.fileno(), fd, start, size)
        else:
            piece = os.pread(fd, size, start)
            sent = len(piece)
            self._sock.sendall(piece.translate(table) if table else piece)
        if not sent:
            raise _Ended  # the file has become shorter
        return sent

    def _end_request(self) -> None:
        if self._is_running:
            self._is_running = False
            self._counters.ended()

    def _wait_for_end(self, timeout_s: float | None = None) -> None:
        """Do nothing until the other side, or the server's stop, ends the connection, or the time is over."""
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN | select.POLLRDHUP)
        if poll.poll(None if timeout_s is None else timeout_s * 1000):
            raise _Ended

    def _error(self, status: int, code: str, request: _Request) -> None:
        document = range_objects.error(code, request.path)
        if request.method == "HEAD":
            self._head(status, {"Content-Length": str(len(document)), "Content-Type": "application/xml"})
        else:
            self._reply(status, document)

    def _reply(self, status: int, document: str, *, kind: str = "application/xml") -> None:
        body = document.encode()
        self._head(status, {"Content-Length": str(len(body)), "Content-Type": kind}, body)

    def _head(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self._counters.answered(status)
        if status not in {200, 206}:
            self._end_request()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            "Server: glowplug-testbed",
            "x-amz-request-id: testbed",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def _range(text: str, size_bytes: int) -> tuple[int, int]:
    """First byte and first byte after; the whole object where none, or none that is understood, is asked for."""
    unit, _, span = text.partition("=")
    first, dash, last = span.partition("-")
    if unit != "bytes" or not dash or "," in span:
        return 0, size_bytes
    if not first:
        return max(0, size_bytes - int(last)), size_bytes
    return int(first), min(int(last) + 1, size_bytes) if last else size_bytes


def _another_range(start: int, end: int, size_bytes: int) -> tuple[int, int]:
    if end < size_bytes:
        return start + 1, end + 1
    return (start - 1, end - 1) if start else (start, end - 1)
