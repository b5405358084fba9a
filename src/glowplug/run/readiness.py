"""Readiness: ask the engine's health endpoint until it answers 200.

Standard library only, one connection a probe, no redirects, and certificates are not verified: the probe goes to this very host.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

INTERVAL_S = 0.25
_PROBE_TIMEOUT_S = 5.0


def wait_until_ready(url: str, gone: threading.Event, now_s: Callable[[], float], *, timeout_s: float) -> float | None:
    """Probe until the engine is ready.

    Args:
        url: ``http://`` or ``https://`` with host, port and path, or ``http+unix://`` with a percent-encoded socket and path.
        gone: set when the engine has ended.
        now_s: the start's clock.
        timeout_s: give up after so many seconds.

    Returns:
        The clock's time of the first good answer, or None if the engine ended or the time is up.
    """
    end_s = now_s() + timeout_s
    while not gone.wait(INTERVAL_S) and now_s() < end_s:
        if probe(url):
            return now_s()
    return None


def probe(url: str) -> bool:
    """Whether the endpoint answers 200 now."""
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    connection: http.client.HTTPConnection
    if parts.scheme == "http+unix":
        connection = _UnixConnection(unquote(parts.netloc))
    elif parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, parts.port, timeout=_PROBE_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, as ``vllm serve --uds`` listens."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PROBE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
