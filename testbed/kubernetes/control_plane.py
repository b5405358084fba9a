"""A Kubernetes control plane: etcd, and a kube-apiserver that serves TLS, knows one user and defines custom resources.

No controller, scheduler or kubelet runs: nothing happens to an object after the server has accepted it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed import certs
from testbed.kubernetes.api import Api, RefusedError
from testbed.ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_OWN_DEFINITIONS = Path(__file__).parent / "definitions"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.02


class ControlPlane:
    """One control plane. A context manager: it serves when ``with`` is entered, and is gone when it is left.

    Args:
        folder: for data, keys and logs; made if missing. Only the logs are left in it.
        built: the folder with the programs and the definitions of custom resources.
    """

    def __init__(self, folder: Path, *, built: Path) -> None:
        self._folder = folder
        self._built = built
        self._token = secrets.token_hex(16)
        self._client_port, self._peer_port, self._port = free_ports(3)
        self._processes: list[subprocess.Popen[bytes]] = []
        """In the order of their start. They end in the opposite one: without etcd the apiserver would linger for a minute."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def api(self) -> Api:
        """A client with all rights."""
        return Api(self._port, ca=self._secrets / "ca.pem", token=self._token)

    def start(self) -> None:
        """Start it, and wait until it serves the custom resources as well; 3 to 5 s.

        Raises:
            RuntimeError: it does not serve within a minute; the message ends with the log of the one that is to blame.
        """
        made = certs.make(self._secrets, [HOST, "localhost"])
        users = self._secrets / "users.csv"
        users.write_text(f'{self._token},test,test,"system:masters"\n')
        users.chmod(0o600)
        client, peer = f"http://{HOST}:{self._client_port}", f"http://{HOST}:{self._peer_port}"
        try:
            self._run(
                "etcd",
                f"--data-dir={self._data}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                # It has nobody to agree with, and need not wait for a second before it says so.
                "--heartbeat-interval=10",
                "--election-timeout=100",
                "--log-level=warn",
            )
            self._run(
                "kube-apiserver",
                f"--etcd-servers={client}",
                f"--bind-address={HOST}",
                f"--secure-port={self._port}",
                f"--tls-cert-file={made.cert}",
                f"--tls-private-key-file={made.key}",
                f"--cert-dir={self._data}",
                f"--token-auth-file={users}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                # Tokens of service accounts, which no test asks for, need a key: the server's will do.
                f"--service-account-key-file={made.key}",
                f"--service-account-signing-key-file={made.key}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--endpoint-reconciler-type=none",
            )
            with contextlib.closing(self.api()) as api:
                self._wait_until_serving(api)
                self._define(api)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and remove its data; nothing happens if it does not run."""
        while self._processes:
            process = self._processes.pop()
            process.kill()  # there is nothing to save, and an orderly end takes a second
            process.wait()
        for folder in (self._data, self._secrets):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _secrets(self) -> Path:
        return self._folder / "secrets"

    def _run(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            # Ctrl-C reaches us; we stop them in order.
            process = subprocess.Popen(
                [self._built / "bin" / name, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_until_serving(self, api: Api) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        said = "nothing"
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended while starting\n{self._log_tails()}")
            try:
                api.request("GET", "/readyz")
            except (OSError, RefusedError) as error:
                said = str(error)
                api.close()
                time.sleep(_POLL_S)
            else:
                return
        raise RuntimeError(f"the control plane is not ready after {_START_TIMEOUT_S:.0f} s: {said}\n{self._log_tails()}")

    def _define(self, api: Api) -> None:
        """Make the custom resources known, and wait until the server has taken them up."""
        files = sorted([*(self._built / "definitions").iterdir(), *_OWN_DEFINITIONS.iterdir()])
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        made = [api.request("POST", collection, file.read_text(), content_type="application/yaml").body for file in files]
        deadline = time.monotonic() + _START_TIMEOUT_S
        for definition in made:
            while not _is_served(api, definition["spec"]):
                if time.monotonic() > deadline:
                    now = api.request("GET", f"{collection}/{definition['metadata']['name']}").body
                    raise RuntimeError(f"{definition['metadata']['name']} is not served: {json.dumps(now.get('status'))}")
                time.sleep(_POLL_S)

    def _log_tails(self) -> str:
        parts = []
        for log in sorted(self._folder.glob("*.log")):
            parts += [f"last lines of {log}:", *log.read_text("utf-8", "replace").splitlines()[-20:]]
        return "\n".join(parts)


def _is_served(api: Api, spec: Mapping[str, Any]) -> bool:
    """Whether a custom resource can be found and listed. Its definition is said to be established a little earlier."""
    group, names = spec["group"], spec["names"]
    try:
        for version in (f"{group}/{each['name']}" for each in spec["versions"] if each["served"]):
            api.path({"apiVersion": version, "kind": names["kind"], "metadata": {"name": "any"}})
            api.request("GET", f"/apis/{version}/{names['plural']}?limit=1")
    except RefusedError:
        return False
    return True
