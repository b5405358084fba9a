"""Real servers for tests, and one that fails on purpose. ``tests/conftest.py`` makes the fixtures known to pytest."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from testbed import certs
from testbed.kubernetes.built import built
from testbed.kubernetes.control_plane import ControlPlane
from testbed.ports import HOST
from testbed.range_server import RangeServer
from testbed.seaweedfs import DOMAIN, SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A SeaweedFS over HTTP with the bucket ``glowplug``, one for the whole run; use a prefix of your own."""
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """The same over HTTPS, with a certificate of an authority that only ``AWS_CA_BUNDLE`` names."""
    made = certs.make(tmp_path_factory.mktemp("certificates"), [HOST, "localhost", DOMAIN, f"*.{DOMAIN}"])
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs-tls"), certificates=made) as server:
        yield server


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A Kubernetes control plane, one for the whole run; use a namespace or names of your own for what is to stay in it."""
    folder = built()
    if folder is None:
        pytest.skip("the Kubernetes control plane is not built: make testbed")
    with ControlPlane(tmp_path_factory.mktemp("kubernetes"), built=folder) as started:
        yield started


@pytest.fixture
def range_server() -> Iterator[Callable[..., RangeServer]]:
    """Starts a ``RangeServer`` with the arguments that it is called with; all that were started end with the test."""
    with contextlib.ExitStack() as servers:
        yield lambda folder, **how: servers.enter_context(RangeServer(folder, **how))
