"""``--node-store``: the second start on a node reads what the first has fetched, and starts warm even without its bucket."""

from __future__ import annotations

import socket
import uuid

import pytest

from tests.run.program import eventually


@pytest.fixture
def node(glowplug):
    return glowplug.folder / "node"


def packs(node):
    return {path.name for path in (node / "packs").iterdir()} if (node / "packs").exists() else set()


def test_the_first_hit_fills_it_and_the_next_one_reads_it(glowplug, compiler, node):
    words = ["--node-store", str(node)]
    glowplug.run(*compiler)
    glowplug.forget()
    with glowplug.begin(*compiler, options=words, env={"DOES": "wait"}) as start:
        eventually(lambda: packs(node))  # in the background, for as long as the command runs
        assert start.end().report["outcome"] == "hit"
    glowplug.forget()
    for pack in glowplug.store.glob("v1/*/packs/*"):
        pack.write_bytes(b"")  # nobody needs it any more
    hit = glowplug.run(*compiler, env={"GLOWPLUG_NODE_STORE": str(node)})
    assert (hit.code, hit.report["outcome"]) == (0, "hit")
    assert not hit.said("node")
    glowplug.forget()
    assert glowplug.run(*compiler).report["outcome"] == "refused"


@pytest.mark.s3
def test_without_the_bucket_the_node_s_last_generation_is_restored_and_that_is_said(glowplug, compiler, node, seaweedfs):
    store = f"s3://{seaweedfs.bucket}/node/{uuid.uuid4().hex}"
    words = ["--store", store, "--node-store", str(node)]
    glowplug.extra = seaweedfs.env
    assert glowplug.run(*compiler, options=words).report["publish"]["state"] == "published"
    glowplug.forget()
    with glowplug.begin(*compiler, options=words, env={"DOES": "wait"}) as start:
        eventually(lambda: packs(node) and list((node / "latest").iterdir()))
        start.end()
    glowplug.forget()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nowhere = {name: f"http://127.0.0.1:{port}" for name in seaweedfs.env if name.startswith("AWS_ENDPOINT_URL")}
    assert nowhere
    ended = glowplug.run(*compiler, options=words, env=nowhere)
    assert (ended.code, ended.report["outcome"]) == (0, "hit")
    [line] = ended.said("does not answer, so the newest generation that this node has is used")
    assert str(port) in line


def test_a_folder_that_cannot_be_used_costs_one_line_and_nothing_else(glowplug, compiler, node):
    node.mkdir()
    node.chmod(0o777)
    ended = glowplug.run(*compiler, options=["--node-store", str(node)])
    assert (ended.code, ended.report["publish"]["state"]) == (0, "published")
    assert len(ended.said("cannot use the node store")) == 1


def test_a_size_that_is_none_is_a_usage_error(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--node-store-size", "much"])
    assert ended.code == 2
    assert "--node-store-size" in ended.err
