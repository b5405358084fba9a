"""An S3 server seen from the wire: a proxy that passes each request on as it is, and notes which action of IAM it was.

Signatures stay good, since the ``Host`` header is passed on too. What a request needs is read off its method and query, as the
service authorisation reference has it (https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html).
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}
_ACCESS_KEY = re.compile(r"Credential=([^/]+)/")


@dataclass(frozen=True)
class Call:
    """One request, as a policy sees it."""

    who: str
    """The access key."""
    action: str
    resource: str
    context: dict[str, str] = field(default_factory=dict)
    """Condition keys and their values; a key that the request does not have is not there."""
    status: int = 0

    def __str__(self) -> str:
        return f"{self.action} {self.resource} {self.context} ({self.status})"


class Recorder(ThreadingHTTPServer):
    """Stands before the server at ``host`` and ``port``. A context manager; ``calls`` grows."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = (host, port)
        self.calls: list[Call] = []
        self.before: Callable[[str, str], bool] | None = None
        """Told method and path of each request before it is passed on; True refuses it."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def take(self) -> list[Call]:
        """What was called since the last time."""
        taken, self.calls = self.calls, []
        return taken

    def handle_error(self, request, client_address) -> None:
        """A client that went away is no event."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.before is not None and self.server.before(self.command, self.path):
            self._refuse()
            return
        with contextlib.closing(http.client.HTTPConnection(*self.server.behind, timeout=60)) as connection:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
        self.server.calls += calls_of(self.command, self.path, self.headers, answer.status)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self) -> None:
        data = b"<Error><Code>AccessDenied</Code><Message>refused by the test</Message></Error>"
        self.send_response_only(403)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815  the names that http.server calls

    def log_message(self, *_: object) -> None:
        pass


def calls_of(method: str, path: str, headers, status: int) -> list[Call]:
    """What one request needs: the action, and for an object that is not there the right to be told so."""
    parts = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    found = _ACCESS_KEY.search(headers.get("Authorization", ""))
    who = found[1] if found else ""
    on_bucket, on_object = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    if not key:
        action = "s3:ListBucketMultipartUploads" if "uploads" in query else "s3:ListBucket"
        assert method == "GET", f"{method} {path}"
        return [Call(who, action, on_bucket, {"s3:prefix": query["prefix"]} if "prefix" in query else {}, status)]
    action = _object_action(method, query)
    conditions = ("If-None-Match", "If-Match") if action == "s3:PutObject" else ()
    context = {f"s3:{name.lower()}": headers[name] for name in conditions if name in headers}
    extra = [name for name in headers if re.match(r"x-amz-(acl|grant|tagging|object-lock|server-side|copy)", name.lower())]
    assert not extra, f"{extra} need actions of their own"
    calls = [Call(who, action, on_object, context, status)]
    if status == 404 and action == "s3:GetObject":  # without this right Amazon answers 403; it takes the key as the prefix
        calls.append(Call(who, "s3:ListBucket", on_bucket, {"s3:prefix": key}, status))
    return calls


def _object_action(method: str, query: dict[str, str]) -> str:
    match method:
        case "GET" if "uploadId" in query:
            return "s3:ListMultipartUploadParts"
        case "GET" | "HEAD":
            return "s3:GetObject"
        case "DELETE" if "uploadId" in query:
            return "s3:AbortMultipartUpload"
        case "DELETE":
            return "s3:DeleteObject"
        case _:
            return "s3:PutObject"  # creation, parts and completion of an upload in parts as well
