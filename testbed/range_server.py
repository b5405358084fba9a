"""A small S3-like server of files by ranges, for tests and benchmarks of the weights: fast, slow, or wrong, as told.

A real S3 server costs as much processor time as the client that is measured, and never stalls when it should. This one sends files
by ``sendfile``, keeps a bandwidth and a latency, counts what it sends, and breaks an answer in every way that a client must
survive (``range_faults``). It knows GET with ranges and ``If-Match``, HEAD, ListObjectsV2 and the bucket's location; it reads no
body, checks no signature, and never writes. The folders below its folder are the buckets.

In process, for tests: ``with RangeServer(folder, faults=lambda call: STALL if call.number == 3 else None) as server``. As a process
of its own, for benchmarks: ``RangeServerProcess``, or ``python -m testbed.range_server --dir D --bandwidth 150MB/s --fault
stall=0.01``. ``/_stats`` gives its counts as JSON and ``/_reset`` sets them to zero.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testbed.range_bandwidth import Bandwidth, parse_bandwidth
from testbed.range_connection import Behaviour, Connection
from testbed.range_faults import NAMED, by_chance
from testbed.range_objects import Objects
from testbed.range_stats import Counters, Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from testbed.certs import Certificates
    from testbed.range_faults import Chooser

HOST = "127.0.0.1"
_ROOT = Path(__file__).resolve().parent.parent
_JOIN_TIMEOUT_S = 5.0


class _Endpoint:
    """How a client finds the server, whether it runs in this process or not."""

    port: int
    certificates: Certificates | None

    @property
    def endpoint_url(self) -> str:
        """For ``AWS_ENDPOINT_URL``; ``endpoint_url/bucket/key`` is an object."""
        return f"{'https' if self.certificates else 'http'}://{HOST}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """Variables of an S3 client."""
        env = {
            "AWS_ACCESS_KEY_ID": "GLOWPLUGREADER",
            "AWS_SECRET_ACCESS_KEY": "reader-secret",
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return env | ({"AWS_CA_BUNDLE": str(self.certificates.ca)} if self.certificates else {})


class RangeServer(_Endpoint):
    """Serves a folder from threads of this process, one for each connection. A context manager.

    Args:
        folder: its subfolders are buckets; a subfolder may be a link.
        faults: what to do wrong; asked at each request for an object.
        bandwidth: bytes a second that all connections share; None for no limit.
        latency_s: before each answer about an object.
        access_key: the only one that is accepted; None accepts anybody.
        certificates: serve HTTPS with these, instead of HTTP.
        port: 0 takes a free one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: Chooser | None = None,
        bandwidth: float | None = None,
        latency_s: float = 0.0,
        access_key: str | None = None,
        certificates: Certificates | None = None,
        port: int = 0,
    ) -> None:
        self.behaviour = Behaviour(faults, Bandwidth(bandwidth), latency_s, access_key)
        """May be changed while it serves."""
        self.certificates = certificates
        self._objects = Objects(folder)
        self._counters = Counters()
        self._tls: ssl.SSLContext | None = None
        if certificates:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificates.cert, certificates.key)
        self._listener = socket.create_server((HOST, port), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._stopped = False
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to accept connections; those that come before wait."""
        self._spawn(self._accept)

    def stop(self) -> None:
        """End all connections, whatever they are at, and wait for their threads."""
        with self._lock:
            self._stopped = True
            still_open, threads = list(self._open), list(self._threads)
        for sock in (self._listener, *still_open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_JOIN_TIMEOUT_S)
        self._listener.close()

    def stats(self) -> Stats:
        """The counts so far."""
        return self._counters.stats()

    def reset(self) -> None:
        """Set the counts to zero; the numbers of requests begin at 1 again."""
        self._counters.reset()

    def url(self, key: str) -> str:
        """The plain URL of ``bucket/key``."""
        return f"{self.endpoint_url}/{key}"

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                target(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="range-server", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()  # with the lock held: whoever stops the server joins only what has started

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._counters.connection()
            with self._lock:
                if self._stopped:
                    sock.close()
                    return
                self._open.add(sock)
            self._spawn(self._serve, sock)

    def _serve(self, plain: socket.socket) -> None:
        sock = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                sock = self._tls.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._open.discard(plain)
                    self._open.add(sock)
            Connection(sock, self._objects, self.behaviour, self._counters).serve()
        except OSError:
            pass  # the client went away during the handshake, or distrusts us
        finally:
            with self._lock:
                self._open.discard(plain)
                self._open.discard(sock)
            sock.close()
            plain.close()


class RangeServerProcess(_Endpoint):
    """The same in a process of its own, which ends with this one. A context manager.

    Args:
        folder: as for ``RangeServer``, as are the others.
        faults: probabilities by the names of ``range_faults.NAMED``.
        seed: of the faults.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        bandwidth: float | None = None,
        latency_s: float = 0.0,
        certificates: Certificates | None = None,
    ) -> None:
        self.certificates = certificates
        self._command = [sys.executable, "-m", "testbed.range_server", "--dir", str(folder.absolute()), "--until-stdin-ends"]
        self._command += ["--latency", str(latency_s), "--seed", str(seed)]
        self._command += ["--bandwidth", str(bandwidth)] if bandwidth else []
        for name, share in (faults or {}).items():
            self._command += ["--fault", f"{name}={share}"]
        if certificates:
            self._command += ["--tls", str(certificates.cert), str(certificates.key), str(certificates.ca)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, cwd=_ROOT, start_new_session=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("the range server did not start")
        self.port = int(json.loads(line)["port"])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()  # it writes nothing
            self._process.communicate()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid if self._process else 0

    def stats(self) -> Stats:
        """The counts so far."""
        return Stats.from_json(json.loads(self._ask("/_stats")))

    def reset(self) -> None:
        """Set the counts to zero."""
        self._ask("/_reset")

    def url(self, key: str) -> str:
        """The plain URL of ``bucket/key``."""
        return f"{self.endpoint_url}/{key}"

    def _ask(self, path: str) -> bytes:
        context = ssl.create_default_context(cafile=str(self.certificates.ca)) if self.certificates else None
        with urllib.request.urlopen(self.endpoint_url + path, timeout=30, context=context) as answer:
            return bytes(answer.read())


def main() -> int:
    """Serve until Ctrl-C, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m testbed.range_server", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dir", type=Path, required=True, help="folder whose subfolders are the buckets")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bandwidth", type=parse_bandwidth, help="of all connections together, such as 150MB/s")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE", help=f"one of {', '.join(NAMED)}; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--access-key", help="the only one that is accepted")
    parser.add_argument("--tls", nargs=3, type=Path, metavar=("CERT", "KEY", "CA"), help="PEM files; serves HTTPS")
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    certificates = None
    if options.tls:
        from testbed.certs import Certificates  # noqa: PLC0415  needs a package that a bare machine lacks

        certificates = Certificates(cert=options.tls[0], key=options.tls[1], ca=options.tls[2])
    shares = {name: float(share) for name, _, share in (text.partition("=") for text in options.fault)}
    with RangeServer(
        options.dir,
        faults=by_chance(shares, seed=options.seed) if shares else None,
        bandwidth=options.bandwidth,
        latency_s=options.latency,
        access_key=options.access_key,
        certificates=certificates,
        port=options.port,
    ) as server:
        if options.until_stdin_ends:
            print(json.dumps({"port": server.port}), flush=True)
            sys.stdin.read()
            return 0
        for name, value in server.env.items():
            print(f"export {name}={value}")
        print(f"# buckets: the folders in {options.dir}; counts: {server.endpoint_url}/_stats; stop with Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
