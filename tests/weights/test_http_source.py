"""Checkpoints on web servers: folders and files, redirects, what must not be shown, and servers that can't do it."""

from __future__ import annotations

import base64
import json

import pytest

from glowplug.errors import BadCheckpoint, Forbidden, ObjectChanged, ObjectNotFound, RemoteError, Unreachable, UsageError
from glowplug.weights.base import Entry, Retry
from glowplug.weights.sources.http import HttpSource
from glowplug.weights.sources.patience import Patience
from testbed import certs, range_faults
from tests.store.stub import Stub, reply
from tests.weights.fetches import KIB, QUICK, Model, loading
from tests.weights.weights_samples import write_index

SECRET = "X-Amz-Signature=topsecret"


@pytest.fixture
def model(tmp_path):
    model = Model(tmp_path, files=2)
    write_index(model.path, {"a": model.names[0], "b": model.names[1]})
    (model.path / "config.json").write_text("{}")
    (model.path / "notes.txt").write_text("nobody asks for these")
    return model


def read(source, entry, start, size):
    view = bytearray(size)
    source.read_into(entry, start, memoryview(view), Patience())
    return bytes(view)


# --- a server of files


@pytest.mark.parametrize("memory_bytes", [None, 700 * KIB], ids=["full", "windowed"])
def test_a_folder_is_found_through_its_index_and_loaded_with_every_byte(model, range_server, memory_bytes):
    server = range_server(model.served)
    source = HttpSource(server.url("bucket/m/"), env={})
    names = [entry.name for entry in source.entries()]
    assert names == ["config.json", "model-0.safetensors", "model-1.safetensors", "model.safetensors.index.json"]
    with loading(model, source, memory_bytes=memory_bytes) as running:
        assert running.read().bytes == model.size_bytes


def test_a_folder_without_an_index_has_one_file(tmp_path, range_server):
    model = Model(tmp_path)
    with loading(model, HttpSource(range_server(model.served).url("bucket/m"), env={})) as running:
        assert running.read().bytes == model.size_bytes


def test_the_url_of_one_file_is_that_file(model, range_server):
    server = range_server(model.served)
    source = HttpSource(server.url("bucket/m/model-1.safetensors"), env={})
    (entry,) = source.entries()
    assert (entry.name, entry.size_bytes) == ("model-1.safetensors", (model.path / "model-1.safetensors").stat().st_size)
    assert source.name_of(entry) == server.url("bucket/m/model-1.safetensors")
    assert source.read_small(entry, 4, 10) == (model.path / "model-1.safetensors").read_bytes()[4:14]


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_tls_is_verified_with_the_authority_that_the_environment_names(model, range_server, tmp_path, variable):
    made = certs.make(tmp_path / "certs", ["127.0.0.1"])
    server = range_server(model.served, certificates=made)
    with loading(model, HttpSource(server.url("bucket/m"), env={variable: str(made.ca)})) as running:
        assert running.read().bytes == model.size_bytes
    with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
        HttpSource(server.url("bucket/m"), env={}).entries()
    assert "AWS_CA_BUNDLE" in caught.value.hint


def test_a_certificate_file_that_is_not_there_is_a_usage_error():
    with pytest.raises(UsageError, match=r"SSL_CERT_FILE: /nonexistent\.pem"):
        HttpSource("https://127.0.0.1:1/m", env={"SSL_CERT_FILE": "/nonexistent.pem"}).entries()


def test_faults_are_survived_and_closing_is_quick(tmp_path, range_server):
    model = Model(tmp_path)
    server = range_server(model.served)
    source = HttpSource(server.url("bucket/m"), env={})
    with loading(model, source, QUICK) as running:
        server.behaviour.faults = range_faults.by_chance({"reset": 0.05, "500": 0.05, "stall": 0.02}, seed=1)
        assert running.read().bytes == model.size_bytes


def test_a_file_that_was_replaced_is_an_error(model, range_server):
    source = HttpSource(range_server(model.served).url("bucket/m/model-0.safetensors"), env={})
    (entry,) = source.entries()
    (model.path / "model-0.safetensors").write_bytes(b"other")
    with pytest.raises(ObjectChanged, match="bytes 0-9"):
        read(source, entry, 0, 10)


def test_what_is_not_there_is_named(range_server, tmp_path):
    (tmp_path / "bucket").mkdir()
    server = range_server(tmp_path)
    with pytest.raises(ObjectNotFound, match=r"has neither model\.safetensors\.index\.json nor model\.safetensors"):
        HttpSource(server.url("bucket/m"), env={}).entries()
    with pytest.raises(ObjectNotFound, match=r"there is no http.*/x\.safetensors"):
        HttpSource(server.url("bucket/x.safetensors"), env={}).entries()


def test_an_index_that_names_a_missing_file_names_it(model, range_server):
    (model.path / "model-1.safetensors").unlink()
    with pytest.raises(ObjectNotFound, match=r"model-1\.safetensors"):
        HttpSource(range_server(model.served).url("bucket/m"), env={}).entries()


INDEXES = {
    "blank": b" ",
    "a list": b"[]",
    "no map": b'{"weight_map": 3}',
    "a map to numbers": b'{"weight_map": {"a": 3}}',
    "the folder above": b'{"weight_map": {"a": "../x"}}',
    "another server": b'{"weight_map": {"a": "http://x/y"}}',
    "no text": b"\xff",
    "nested without end": b"[" * 100_000,
    "too many files": json.dumps({"weight_map": {str(number): f"{number}.safetensors" for number in range(20_001)}}).encode(),
}


@pytest.mark.parametrize("content", INDEXES.values(), ids=INDEXES)
def test_an_index_that_cannot_be_is_an_error_that_names_it(model, range_server, content):
    url = range_server(model.served).url("bucket/m")
    (model.path / "model.safetensors.index.json").write_bytes(content)
    with pytest.raises(BadCheckpoint, match=f"^{url}/model.safetensors.index.json ") as caught:
        HttpSource(url, env={}).entries()
    assert caught.value.hint


# --- servers that can't, scripted


def piece(start, data, total=100, **headers):
    named = {"ETag": '"1"', "Content_Range": f"bytes {start}-{start + len(data) - 1}/{total}"} | headers
    return reply(206, data, **named)


def test_a_server_without_ranges_is_named():
    with Stub(reply(200, b"x" * 100, ETag='"1"')) as stub, pytest.raises(RemoteError, match="ignores ranges") as caught:
        HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors?{SECRET}", env={}).entries()
    assert "nginx" in caught.value.hint
    assert "topsecret" not in caught.value.line() + caught.value.object


def test_a_server_without_an_etag_is_named():
    with Stub(reply(206, b"x", Content_Range="bytes 0-0/100")) as stub, pytest.raises(RemoteError, match="sends no ETag"):
        HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors", env={}).entries()


@pytest.mark.parametrize("fault", [range_faults.CHUNKED, range_faults.CHUNKED_WITH_LENGTH], ids=lambda fault: fault.kind)
def test_a_server_that_sends_ranges_in_chunks_is_named(model, range_server, fault):
    server = range_server(model.served, faults=lambda _: fault)
    with pytest.raises(RemoteError, match=r"can't be streamed: .* in chunks \(Transfer-Encoding: chunked\)") as caught:
        HttpSource(server.url("bucket/m/model-0.safetensors"), env={}).entries()
    assert "nginx" in caught.value.hint


def test_a_weak_etag_is_compared_since_no_condition_would_match_it():
    with Stub(piece(0, b"x", ETag='W/"1"'), piece(0, b"y" * 10, ETag='W/"1"'), piece(0, b"z" * 10, ETag='W/"2"')) as stub:
        source = HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors", env={})
        (entry,) = source.entries()
        assert read(source, entry, 0, 10) == b"y" * 10
        with pytest.raises(ObjectChanged):
            read(source, entry, 0, 10)
    assert all("if-match" not in seen.headers for seen in stub.seen)


def test_redirects_are_followed_once_and_asked_for_again_when_they_have_expired():
    def hub(_seen):
        return reply(302, b"", Location=f"http://127.0.0.1:{cdn.port}/blob?{SECRET}{len(front.seen)}")

    def answer(seen):
        if seen.target.endswith("topsecret1") and len(cdn.seen) > 2:
            return reply(403, b"expired")
        start = int(seen.headers["range"].removeprefix("bytes=").partition("-")[0])
        return piece(start, b"x" * (1 if len(cdn.seen) == 1 else 10))

    with Stub(answer) as cdn, Stub(hub) as front:
        source = HttpSource(f"http://user:pass@127.0.0.1:{front.port}/org/m/resolve/main/x.safetensors", env={})
        (entry,) = source.entries()
        assert read(source, entry, 0, 10) == b"x" * 10
        assert read(source, entry, 10, 10) == b"x" * 10
    assert len(front.seen) == 2
    assert [seen.target.partition("?")[2] for seen in cdn.seen] == [f"{SECRET}{n}" for n in (1, 1, 1, 2)]
    # Who may read the hub is no business of where it leads.
    assert all(seen.headers["authorization"] == "Basic " + base64.b64encode(b"user:pass").decode() for seen in front.seen)
    assert all("authorization" not in seen.headers for seen in cdn.seen)


def test_a_circle_of_redirects_ends():
    with Stub(reply(302, b"", Location="/x.safetensors")) as stub, pytest.raises(RemoteError, match="redirects in circles"):
        HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors", env={}).entries()
    assert len(stub.seen) < 10


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "ftp://x/y"])
def test_a_redirect_to_elsewhere_is_refused(location):
    with Stub(reply(302, b"", Location=location)) as stub, pytest.raises(RemoteError, match="redirects to where it should not"):
        HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors", env={}).entries()


@pytest.mark.parametrize(
    ("status", "kind"), [(401, Forbidden), (403, Forbidden), (404, ObjectNotFound), (410, ObjectNotFound), (418, RemoteError)]
)
def test_a_refusal_is_named_without_the_query(status, kind):
    with Stub(reply(status, b"no")) as stub, pytest.raises(kind, match=r"x\.safetensors") as caught:
        HttpSource(f"http://user:hidden@127.0.0.1:{stub.port}/x.safetensors?{SECRET}", env={}).entries()
    for text in (caught.value.line(), caught.value.object):
        assert "topsecret" not in text
        assert "hidden" not in text
    assert SECRET in stub.seen[0].target


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_is_tried_again(status):
    with Stub(piece(0, b"x"), reply(status), piece(0, b"y" * 10)) as stub:
        source = HttpSource(f"http://127.0.0.1:{stub.port}/x.safetensors", env={})
        (entry,) = source.entries()
        with pytest.raises(Retry, match=str(status)) as caught:
            read(source, entry, 0, 10)
        assert caught.value.slow_down == (status in {429, 503})
        assert source.read_small(entry, 0, 10) == b"y" * 10


def test_a_server_that_is_not_there_is_named():
    with Stub(reply(200)) as stub:
        port = stub.port
    with pytest.raises(Unreachable, match=rf"x\.safetensors can't be read after 4 attempts: .*:{port} .*refused"):
        HttpSource(f"http://127.0.0.1:{port}/x.safetensors", env={}).entries()


def test_names_are_quoted(range_server, tmp_path):
    path = tmp_path / "bucket" / "m" / "größe +1 @x.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0123456789")
    server = range_server(tmp_path)
    for url in (server.url("bucket/m/größe +1 @x.safetensors"), server.url("bucket/m/gr%C3%B6%C3%9Fe%20+1%20@x.safetensors")):
        (entry,) = HttpSource(url, env={}).entries()
        assert entry.name == "größe +1 @x.safetensors"
        assert read(HttpSource(url, env={}), entry, 2, 5) == b"23456"


@pytest.mark.parametrize("url", ["http://", "https://:80/x", "http://[::1/x", "http://host:port/?topsecret"])
def test_a_url_that_cannot_be_is_a_usage_error_that_does_not_repeat_it(url):
    with pytest.raises(UsageError) as caught:
        HttpSource(url, env={})
    assert "topsecret" not in caught.value.line() + caught.value.object


def test_the_hubs_token_goes_to_the_hub_only():
    hub = HttpSource("https://huggingface.co/org/m/resolve/main", env={"HF_TOKEN": "hf_x"})
    other = HttpSource("https://example.com/m", env={"HF_TOKEN": "hf_x"})
    assert hub._folder.authorization == "Bearer hf_x"
    assert other._folder.authorization == ""
    assert "hf_x" not in repr(hub._folder)


def test_what_is_shown_of_a_file_holds_no_query():
    source = HttpSource(f"https://user:hidden@host/a/b?{SECRET}", env={})
    assert source.uri == "https://host/a/b"
    assert source.name_of(Entry("c d.bin", 1, "")) == "https://host/a/b/c%20d.bin"
