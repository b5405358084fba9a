"""What the fault tests share: one launcher that forks for each command, and stores, each an empty one."""

from __future__ import annotations

import itertools

import pytest

from testbed.store_proxy import StoreProxy
from tests.faults.nodes import Launcher, Place

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def launcher():
    with Launcher() as launcher:
        yield launcher


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Gives an empty store in a folder at each call."""
    folder = tmp_path_factory.mktemp("stores")
    return lambda: Place(f"file://{folder}/store-{next(_NUMBERS)}")


@pytest.fixture(scope="session")
def buckets(seaweedfs):
    """Gives an empty prefix of the real S3 server at each call."""
    return lambda: Place(f"s3://{seaweedfs.bucket}/faults-{next(_NUMBERS)}", seaweedfs.env)


@pytest.fixture
def proxy(seaweedfs):
    with StoreProxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(seaweedfs, proxy):
    """Gives an empty prefix of the real S3 server, through the proxy, at each call."""
    return lambda: Place(f"s3://{seaweedfs.bucket}/faults-{next(_NUMBERS)}", seaweedfs.env | proxy.env)
