"""A server at the network edge that says what a test tells it to.

For the answers of Amazon, and of broken networks, that SeaweedFS never gives. It reads whole requests and keeps them; each is
answered by the next entry of a script.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from glowplug.store.s3 import S3Store
from glowplug.store.s3_client import S3Client
from glowplug.store.s3_endpoint import Location

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_CONFIG_FILE": "/nonexistent"}


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Script:
    """What to do with a request."""

    data: bytes = b""
    then: str = "keep"
    """``keep`` the connection, ``close`` it, ``reset`` it, ``stall``, or ``drip`` a byte now and then."""


Step = Script | Callable[[Seen], Script]


def reply(status: int, body: bytes = b"", **headers: str) -> Script:
    """A whole answer; underscores in header names are dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in ({"Content-Length": str(len(body))} | named).items())
    return Script(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)


def error(status: int, code: str, extra: str = "", **headers: str) -> Script:
    """Amazon's error document."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>the text of {code}</Message>{extra}</Error>"
    return reply(status, body.encode(), **headers)


class Stub:
    """Listens on 127.0.0.1 while it is entered. After the last step it repeats the last."""

    def __init__(self, *steps: Step, read_bodies: bool = True) -> None:
        self.seen: list[Seen] = []
        self.pauses: list[float] = []
        self._steps = list(steps)
        self._read_bodies = read_bodies
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    @property
    def env(self) -> dict[str, str]:
        return CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "eu-west-1"}

    def store(self, url: str = "s3://bucket/pre", **env: str) -> S3Store:
        """A store at this server whose pauses are noted, not slept."""
        location = Location.parse(url)
        return S3Store(location, S3Client(location.bucket, self.env | env, sleep=self.pauses.append), url=url)

    @property
    def asked(self) -> list[str]:
        """Method and target of each request."""
        return [f"{seen.method} {seen.target}" for seen in self.seen]

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while seen := self._read(stream):
                with self._lock:
                    self.seen.append(seen)
                    step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
                script = step if isinstance(step, Script) else step(seen)
                connection.sendall(script.data)
                if script.then == "stall":
                    self._ended.wait(20)
                while script.then == "drip" and not self._ended.wait(0.02):
                    connection.sendall(b"x")
                if script.then == "reset":
                    time.sleep(0.05)  # let what was sent arrive before the reset overtakes it
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if not self._read_bodies:
                    time.sleep(0.1)  # let the answer be read before the close, with data unread, turns into a reset
                if script.then != "keep" or not self._read_bodies:
                    return

    def _read(self, stream) -> Seen | None:
        first = stream.readline().decode()
        if not first.strip():
            return None
        method, target, _ = first.split()
        headers = {}
        while line := stream.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0))) if self._read_bodies else b""
        return Seen(method, target, headers, body)
