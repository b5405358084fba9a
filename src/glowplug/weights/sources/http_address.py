"""An address on the web, with what must be sent there and must not be shown; and the connections to such addresses' servers."""

from __future__ import annotations

import base64
import importlib.util
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urljoin, urlsplit

from glowplug import __version__
from glowplug.errors import RemoteError, UsageError
from glowplug.store import s3_http
from glowplug.store.http_exchange import Exchange
from glowplug.store.proxy import proxy_for
from glowplug.store.s3_endpoint import Endpoint

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from glowplug.weights.base import Meter

_HUB = "huggingface.co"
_KEEP = "%/:@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a GET goes.

    Attributes:
        server: scheme, host and port.
        path: quoted; begins with a slash, and of a folder ends without one.
        query: quoted, with its question mark; may hold a signature.
        authorization: the header's value; for this server only.
    """

    server: Endpoint
    path: str
    query: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, env: Mapping[str, str]) -> Address:
        """From what a user writes.

        Raises:
            UsageError: not the URL of a place on a web server. The message does not repeat it, as it may hold credentials.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in {"http", "https"}:
            raise UsageError("this is not the URL of a web server", object="URI", hint="write https://host/folder")
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        elif env.get("HF_TOKEN") and parts.scheme == "https" and host == (urlsplit(env.get("HF_ENDPOINT", "")).hostname or _HUB):
            authorization = f"Bearer {env['HF_TOKEN'].strip()}"
        query = f"?{quote(parts.query, safe=_KEEP + '?')}" if parts.query else ""
        path = quote(parts.path, safe=_KEEP).rstrip("/")
        return cls(_server(parts.scheme == "https", host, port), path, query, authorization)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self.server.origin

    @property
    def shown(self) -> str:
        """For messages: without credentials and query."""
        return self.server.origin + (self.path or "/")

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        return (self.path or "/") + self.query

    @property
    def parent(self) -> Address:
        """The folder it lies in."""
        return replace(self, path=self.path.rpartition("/")[0])

    def child(self, name: str) -> Address:
        """A file below it."""
        return replace(self, path=f"{self.path}/{quote(name, safe='/-_.~')}")

    def follow(self, location: str) -> Address:
        """Where a redirect leads.

        Raises:
            RemoteError: to no web server, or from https to http.
        """
        try:
            parts = urlsplit(urljoin(self.server.origin + self.target, location))
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in {"http", "https"} or (self.server.https and parts.scheme == "http"):
            hint = "check the URL and the server's redirects"
            raise RemoteError(f"{self.shown} redirects to where it should not", object=self.shown, hint=hint)
        server = _server(parts.scheme == "https", host, port)
        query = f"?{quote(parts.query, safe=_KEEP + '?')}" if parts.query else ""
        return Address(server, quote(parts.path, safe=_KEEP), query, self.authorization if server == self.server else "")


class Servers:
    """Kept connections to any number of web servers. Safe for any number of threads.

    Args:
        env: proxy and certificates.

    Raises:
        UsageError: certificates that can't be read.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._connections: dict[Endpoint, s3_http.Connections] = {}

    def exchange(self, address: Address, headers: Mapping[str, str], meter: Meter, *, fresh: bool) -> Exchange:
        """A GET, to be entered."""
        named = {"Host": address.server.authority, "User-Agent": f"glowplug/{__version__}", "Accept-Encoding": "identity"}
        if address.authorization:
            named["Authorization"] = address.authorization
        connections = self._to(address.server)
        return Exchange(
            connections, address.target, named | dict(headers), fresh=fresh, connected=meter.connected, advance=meter.advance
        )

    def through(self, server: Endpoint) -> str:
        """The proxy on the way to a server that was asked before, for messages; empty if there is none."""
        return self._to(server).through

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            for connections in self._connections.values():
                connections.close()

    def _to(self, server: Endpoint) -> s3_http.Connections:
        with self._lock:
            if server not in self._connections:
                if server.https and self._tls is None:
                    self._tls = self._context()
                tls = self._tls if server.https else None
                self._connections[server] = s3_http.Connections(server, tls=tls, proxy=proxy_for(server, self._env))
            return self._connections[server]

    def _context(self) -> ssl.SSLContext:
        variable = next((name for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE") if self._env.get(name)), None)
        found = importlib.util.find_spec("botocore")  # only looked for: loading it takes 0.4 s
        fallback = str(Path(found.origin).with_name("cacert.pem")) if found and found.origin else ""
        try:
            return s3_http.tls_context(self._env[variable] if variable else None, fallback_bundle=fallback)
        except OSError as error:
            reason = error.strerror or str(error)
            where = f"{variable}: {self._env[variable]}" if variable else "the certificates"
            hint = "name a file of PEM certificates"
            raise UsageError(f"{where} can't be used: {reason}", object=variable or "AWS_CA_BUNDLE", hint=hint) from error


def _server(https: bool, host: str, port: int | None) -> Endpoint:
    return Endpoint(https, host, port or (443 if https else 80), "", "", is_aws=False)
