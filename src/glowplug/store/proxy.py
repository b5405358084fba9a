"""The proxy that the environment names, and how errors speak of it.

A request that fails behind a proxy fails more often because of it than because of the store: the variable was set for the internet,
and the store is next door. So every such error names the proxy and the variable, never its password, and ``NO_PROXY``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.store.s3_endpoint import Endpoint

_THROUGH = ", through the proxy "


class Proxy(NamedTuple):
    """A proxy for HTTP."""

    host: str
    port: int
    authorization: dict[str, str]
    """The header with its password, if it has one."""
    variable: str
    """That names it, as it is spelled in the environment."""

    @property
    def through(self) -> str:
        """For the end of what has failed."""
        return f"{_THROUGH}{self.host}:{self.port} that {self.variable} names"


def proxy_for(endpoint: Endpoint, env: Mapping[str, str]) -> Proxy | None:
    """The proxy that the environment names for this endpoint: ``HTTPS_PROXY`` or ``HTTP_PROXY``, less ``NO_PROXY``, any case.

    Raises:
        UsageError: the variable holds no URL.
    """
    name = "https_proxy" if endpoint.https else "http_proxy"
    variable = name if env.get(name) else name.upper()
    proxy = env.get(variable)
    if not proxy:
        return None
    for exception in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(","):
        exempt = exception.strip().lower().lstrip("*").lstrip(".")
        host = endpoint.host.lower()
        if exception.strip() == "*" or (exempt and (host == exempt or host.endswith(f".{exempt}") or endpoint.authority == exempt)):
            return None
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host = ""
    if not host:  # never the value in the message: it may hold a password
        raise UsageError(f"{variable} names no proxy", object=variable, hint="write http://host:port") from None
    return Proxy(host, port, _authorization(parts.netloc), variable)


def hint_for(failure: str, otherwise: str) -> str:
    """What to do about a failure: look at the proxy, where one was in the way."""
    if _THROUGH not in failure:
        return otherwise
    return "check the proxy; if this server is reached without it, add its host to NO_PROXY"


def _authorization(netloc: str) -> dict[str, str]:
    user, separator, _ = netloc.rpartition("@")
    return {"Proxy-Authorization": "Basic " + base64.b64encode(unquote(user).encode()).decode()} if separator else {}
