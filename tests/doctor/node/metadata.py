"""An instance metadata service, version 2, on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

DOCUMENT = {"instanceType": "g6.12xlarge", "region": "eu-west-1", "availabilityZone": "eu-west-1b", "accountId": "123456789012"}


class Metadata:
    """Serves while it is entered.

    Args:
        document: the instance's identity document; bytes as they are.
        token: what it gives for a token; None refuses.
        silent: never answers.
    """

    def __init__(self, document=None, *, token="the-token", silent=False) -> None:
        self.seen: list[str] = []
        self._over = threading.Event()
        body = document if isinstance(document, bytes) else json.dumps(document or DOCUMENT).encode()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                service.seen.append(f"PUT {self.path}")
                if silent:
                    service._over.wait(30)
                    return
                asked = self.path == "/latest/api/token" and self.headers["x-aws-ec2-metadata-token-ttl-seconds"]
                self._answer(200 if asked and token else 403, (token or "").encode())

            def do_GET(self) -> None:
                service.seen.append(f"GET {self.path}")
                good = self.headers["x-aws-ec2-metadata-token"] == token
                self._answer(200 if good and self.path == "/latest/dynamic/instance-identity/document" else 401, body)

            def _answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}/"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
