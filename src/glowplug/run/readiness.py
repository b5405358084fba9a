"""Readiness: ask the engine's health endpoint until it answers 200.

Standard library only, one connection a probe, no redirects, and certificates are not verified: the probe goes to this very host.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

INTERVAL_S = 0.25
_PROBE_TIMEOUT_S = 5.0
_TAKEN_TIMEOUT_S = 0.2  # the engine waits for it; an address of this machine accepts or refuses at once


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
    from http.client import OK, HTTPConnection, HTTPException  # noqa: PLC0415  not while the engine waits to be spawned

    connection = HTTPConnection("localhost", timeout=_PROBE_TIMEOUT_S)
    try:
        connection.sock = _connect(url, _PROBE_TIMEOUT_S)
        connection.request("GET", urlsplit(url).path or "/")
        return connection.getresponse().status == OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def is_taken(url: str) -> bool:
    """Whether something listens there already; asked before the engine is spawned, with a connection and nothing else."""
    try:
        _connect(url.replace("https://", "http://", 1), _TAKEN_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _connect(url: str, timeout_s: float) -> socket.socket:
    """A connection to the URL's host or Unix socket, with TLS where its scheme says so."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":  # as ``vllm serve --uds`` listens
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(unquote(parts.netloc))
        except OSError:
            connection.close()
            raise
        return connection
    secure = parts.scheme == "https"
    connection = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or (443 if secure else 80)), timeout_s)
    if not secure:
        return connection
    import ssl  # noqa: PLC0415  only for a server with a certificate

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(connection, server_hostname=parts.hostname)
    except OSError:
        connection.close()
        raise
