"""A real S3 server that holds every identity to its policy file, and ``glowplug`` as one of them."""

from __future__ import annotations

import sys

import pytest

from glowplug.cache.keys import create_pair
from glowplug.store import open_store
from testbed.seaweedfs import HOST, SeaweedFS
from tests.run import stand_ins
from tests.run.program import Program
from tests.security import policies
from tests.security.recorder import Recorder

OTHER = "other-servers"  # this server is not Amazon's: that it heeds conditions is proven before the first conditional write
ROLES = {
    "reader": policies.merged("cache-reader"),
    "mute": policies.merged("cache-reader", REPORTS_AS="somebody-else"),  # may read, and not even report under its own name
    "writer": policies.merged("cache-writer", OTHER),
    "janitor": policies.merged("cache-janitor", OTHER),
    "streamer": policies.merged("weights-reader"),
    "pusher": policies.merged("weights-pusher", "other-servers", STORE_PREFIX=policies.MODELS_PREFIX + "/m"),
}
# Compiles where nothing was restored, and dies of what was.
POISONED = """
import os, pathlib, sys
graph = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "00", "c0.so") if "TORCHINDUCTOR_CACHE_DIR" in os.environ else None
if graph is not None and graph.exists():
    graph.read_bytes()
    print("Segmentation fault in c0.so", file=sys.stderr, flush=True)
    os.abort()
if graph is not None:
    graph.parent.mkdir(parents=True, exist_ok=True)
    graph.write_bytes(os.urandom(1000))
print("compiled")
"""
STORE = f"s3://{policies.BUCKET}/{policies.PREFIX}"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """The server. Its ``admin`` may do anything, the roles only what their policies say."""
    with SeaweedFS(tmp_path_factory.mktemp("guarded"), bucket=policies.BUCKET, policies=ROLES) as server:
        yield server


@pytest.fixture
def shelf(guarded):
    """The store with the rights of ``admin``, empty before and after."""
    store = open_store(STORE, env=guarded.env_of("admin"))

    def clear():
        for info in list(store.list("")):
            store.delete(info.key)

    clear()
    yield store
    clear()


@pytest.fixture(scope="session")
def recorder(guarded):
    with Recorder(HOST, guarded.port) as recorder:
        yield recorder


@pytest.fixture
def keys(tmp_path):
    """A fleet's pair: the variables of a signer and of one who only trusts."""
    create_pair(tmp_path / "fleet")
    trusted = {"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "fleet.pub")}
    return {"signs": trusted | {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "fleet.key")}, "trusts": trusted}


@pytest.fixture
def machine(guarded, recorder, shelf, tmp_path):
    """Makes a machine whose ``glowplug`` has the rights of a role, through the recorder; an empty one each time, at one place."""
    assert not list(shelf.list(""))

    def make(role, **env):
        rights = guarded.env_of(role) | {"AWS_ENDPOINT_URL": recorder.endpoint_url}
        program = Program(tmp_path / "machine", rights | {"GLOWPLUG_STORE": STORE} | env)
        if program.live.exists():
            program.forget()
        return program

    return make


@pytest.fixture
def compiler(tmp_path):
    return stand_ins.compiler(tmp_path).words


@pytest.fixture
def poisoned(tmp_path):
    script = tmp_path / "poisoned.py"
    script.write_text(POISONED)
    return (sys.executable, str(script))
