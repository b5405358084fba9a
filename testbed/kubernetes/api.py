"""A client of a Kubernetes API server, as much of one as the tests need: read, and apply on the server's side.

It sends a document's own bytes, so what the server parses is what a person would have piped to kubectl.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_S = 30.0
_APPLY = "application/apply-patch+yaml"


class RefusedError(Exception):
    """The server did not do it, and says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said.

    Attributes:
        body: the object as it is now, or, in a dry run, as it would be.
        warnings: what the server has against it, though it accepts it.
    """

    body: Mapping[str, Any]
    warnings: tuple[str, ...]


class Api:
    """One connection to a server, kept open. Not for several threads.

    Args:
        port: on this machine.
        ca: certificate of the authority that signed the server's.
        token: whom the server takes us for.
    """

    def __init__(self, port: int, *, ca: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        self._connection = http.client.HTTPSConnection(HOST, port, timeout=_TIMEOUT_S, context=context)
        self._token = token
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def request(self, method: str, path: str, body: str = "", *, content_type: str = "") -> Answer:
        """Send one request; a second time if the server has closed the connection meanwhile.

        Raises:
            RefusedError: the server answers with an error.
            OSError: it does not answer.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            self._connection.request(method, path, body.encode() or None, headers)
            response = self._connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()
            self._connection.request(method, path, body.encode() or None, headers)
            response = self._connection.getresponse()
        text = response.read().decode()
        if response.status >= 400:
            raise RefusedError(response.status, _reason(text))
        warnings = tuple(response.headers.get_all("Warning") or ())
        return Answer(json.loads(text) if text.startswith("{") else {"text": text}, warnings)

    def get(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that has this one's kind and name."""
        return self.request("GET", self.path(document)).body

    def apply(self, document: Mapping[str, Any], *, text: str = "", dry_run: bool = False, manager: str = "kubectl") -> Answer:
        """Apply on the server's side, with no field unknown and no conflict overridden, as ``kubectl apply --server-side`` does.

        Args:
            document: what to apply.
            text: its YAML, sent as it is.
            dry_run: the server does all that it does otherwise, but for keeping the result.
            manager: in whose name the fields are held.

        Raises:
            RefusedError: the server refuses it, or has no such kind.
        """
        query = {"fieldManager": manager, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        path = f"{self.path(document)}?{urllib.parse.urlencode(query)}"
        return self.request("PATCH", path, text or json.dumps(document), content_type=_APPLY)

    def path(self, document: Mapping[str, Any]) -> str:
        """Where an object lies, or would lie.

        Raises:
            RefusedError: the server has no such kind.
        """
        version, kind = document["apiVersion"], document["kind"]
        if (version, kind) not in self._paths:
            self._discover(version)
        if (version, kind) not in self._paths:
            raise RefusedError(404, f"there is no {kind} in {version}")
        path, namespaced = self._paths[version, kind]
        about = document["metadata"]
        within = f"namespaces/{about.get('namespace', 'default')}/" if namespaced else ""
        return f"{path.format(within)}/{about['name']}"

    def _discover(self, version: str) -> None:
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            found = self.request("GET", base).body["resources"]
        except RefusedError as error:
            if error.status != 404:
                raise
            found = []
        for each in found:
            if "/" not in each["name"]:  # else a subresource, such as deployments/scale
                self._paths[version, each["kind"]] = (f"{base}/{{}}{each['name']}", each["namespaced"])


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]
