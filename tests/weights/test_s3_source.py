"""Checkpoints in buckets: a real S3 server, over HTTP and HTTPS, and answers that only a scripted one gives."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading

import pytest

from glowplug.errors import (
    BucketNotFound,
    Forbidden,
    IntegrityError,
    ObjectChanged,
    ObjectNotFound,
    Unreachable,
    UsageError,
)
from glowplug.store.s3_client import S3Client
from glowplug.weights.base import Entry, Retry
from glowplug.weights.sources.patience import Patience
from glowplug.weights.sources.s3 import S3Source
from testbed import range_faults
from tests.store.stub import CREDENTIALS, Stub, error, reply
from tests.weights.fetches import KIB, QUICK, Model, loading

ODD_NAMES = ["a+b.bin", "with blank.json", "größe.txt", "@at=1&2#3?.bin", "100%.bin", "sub/folder/x.json"]


def put(server, key, data):
    client = S3Client(server.bucket, server.env)
    client.call("PUT", key, lambda reply: reply.read(), body=data)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model(tmp_path_factory.mktemp("model"), files=2)


def upload(server, model, prefix):
    for name in model.names:
        put(server, f"{prefix}/{name}", (model.path / name).read_bytes())
    return f"s3://{server.bucket}/{prefix}"


# --- a real server


@pytest.mark.s3
@pytest.mark.parametrize("memory_bytes", [None, 700 * KIB], ids=["full", "windowed"])
def test_a_checkpoint_is_loaded_with_every_byte(seaweedfs, model, memory_bytes):
    url = upload(seaweedfs, model, "s3-source/plain")
    with loading(model, S3Source(url, env=seaweedfs.env), memory_bytes=memory_bytes) as running:
        assert running.read().bytes == model.size_bytes


@pytest.mark.s3
def test_a_checkpoint_is_loaded_over_tls(seaweedfs_tls, model):
    url = upload(seaweedfs_tls, model, "s3-source/tls")
    with loading(model, S3Source(url, env=seaweedfs_tls.env), QUICK.over(low_speed_window_s=5.0)) as running:
        assert running.read().bytes == model.size_bytes


@pytest.mark.s3
def test_a_certificate_nobody_vouches_for_is_refused(seaweedfs_tls, model):
    url = upload(seaweedfs_tls, model, "s3-source/distrust")
    trusted = S3Source(url, env=seaweedfs_tls.env)
    entry = trusted.entries()[0]
    source = S3Source(url, env={name: value for name, value in seaweedfs_tls.env.items() if name != "AWS_CA_BUNDLE"})
    for read in (source.entries, lambda: source.read_into(entry, 0, memoryview(bytearray(10)), Patience())):
        with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
            read()
        assert "AWS_CA_BUNDLE" in caught.value.hint


@pytest.mark.s3
def test_every_file_is_listed_whatever_it_is_called(seaweedfs):
    for name in ODD_NAMES:
        put(seaweedfs, f"s3-source/odd/{name}", name.encode())
    source = S3Source(f"s3://{seaweedfs.bucket}/s3-source/odd/", env=seaweedfs.env_of("reader"))
    entries = source.entries()
    assert [entry.name for entry in entries] == sorted(ODD_NAMES)
    for entry in entries:
        assert source.read_small(entry, 0, entry.size_bytes).decode() == entry.name
        view = bytearray(entry.size_bytes)
        source.read_into(entry, 0, memoryview(view), Patience())
        assert view.decode() == entry.name


@pytest.mark.s3
def test_the_url_of_one_file_is_that_file(seaweedfs, model):
    url = upload(seaweedfs, model, "s3-source/single")
    source = S3Source(f"{url}/{model.names[1]}", env=seaweedfs.env)
    (entry,) = source.entries()
    assert entry.name == model.names[1]
    assert entry.size_bytes == (model.path / model.names[1]).stat().st_size
    assert entry in S3Source(url, env=seaweedfs.env).entries()
    assert source.name_of(entry) == f"{url}/{model.names[1]}"
    assert source.read_small(entry, 0, 8) == (model.path / model.names[1]).read_bytes()[:8]


@pytest.mark.s3
def test_what_is_not_there_is_named(seaweedfs):
    with pytest.raises(ObjectNotFound, match=f"nothing under s3://{seaweedfs.bucket}/none/"):
        S3Source(f"s3://{seaweedfs.bucket}/none", env=seaweedfs.env).entries()
    with pytest.raises(ObjectNotFound, match=r"none\.safetensors"):
        S3Source(f"s3://{seaweedfs.bucket}/none.safetensors", env=seaweedfs.env).entries()
    with pytest.raises(BucketNotFound, match="no-such-bucket"):
        S3Source("s3://no-such-bucket/m", env=seaweedfs.env_of("admin")).entries()


@pytest.mark.s3
def test_a_prefix_is_a_folder_and_not_the_beginning_of_a_name(seaweedfs):
    put(seaweedfs, "s3-source/pre/a.json", b"1")
    put(seaweedfs, "s3-source/prefix/b.json", b"2")
    source = S3Source(f"s3://{seaweedfs.bucket}/s3-source/pre", env=seaweedfs.env)
    assert [entry.name for entry in source.entries()] == ["a.json"]


@pytest.mark.s3
def test_wrong_credentials_are_named_by_listing_and_by_reading(seaweedfs, model):
    url = upload(seaweedfs, model, "s3-source/secret")
    entry = S3Source(url, env=seaweedfs.env).entries()[0]
    source = S3Source(url, env=seaweedfs.env | {"AWS_SECRET_ACCESS_KEY": "wrong-one"})
    for read in (source.entries, lambda: source.read_into(entry, 0, memoryview(bytearray(10)), Patience())):
        with pytest.raises(Forbidden, match="SignatureDoesNotMatch") as caught:
            read()
        assert "wrong-one" not in caught.value.line()


@pytest.mark.s3
def test_an_object_that_was_replaced_is_an_error(seaweedfs):
    key = "s3-source/replaced/x.safetensors"
    put(seaweedfs, key, b"a" * 1000)
    source = S3Source(f"s3://{seaweedfs.bucket}/{key}", env=seaweedfs.env)
    (entry,) = source.entries()
    put(seaweedfs, key, b"b" * 1000)
    with pytest.raises(ObjectChanged, match="bytes 100-199"):
        source.read_into(entry, 100, memoryview(bytearray(100)), Patience())
    with pytest.raises(ObjectChanged, match="bytes 0-7"):
        source.read_small(entry, 0, 8)


# --- a server that says what it is told to


def page(*keys):
    rows = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>e</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    return reply(200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())


def test_markers_of_folders_and_stray_keys_are_passed_over():
    with Stub(page("m/", "m/sub/", "m/config.json", "m//x.txt", "m/../y.txt")) as stub:
        assert [entry.name for entry in S3Source("s3://bucket/m", env=stub.env).entries()] == ["config.json"]


def test_weights_whose_key_can_be_no_path_are_an_error():
    named = re.escape("s3://bucket/m/../b.safetensors")
    with Stub(page("m/a.safetensors", "m/../b.safetensors")) as stub, pytest.raises(IntegrityError, match=named):
        S3Source("s3://bucket/m", env=stub.env).entries()


def range_reply(start, data, total=1000, **headers):
    named = {"ETag": '"1"', "Content-Range": f"bytes {start}-{start + len(data) - 1}/{total}"} | headers
    return reply(206, data, **{name.replace("-", "_"): value for name, value in named.items()})


HEAD = range_reply(0, b"x")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (range_reply(1, b"0123456789"), "another range: bytes 1-10/1000"),
        (reply(206, b"0123456789", ETag='"1"'), "it does not say which"),
        (reply(200, b"0123456789", ETag='"1"'), "sent the whole object"),
        (range_reply(0, b"0123456789", **{"Content-Encoding": "gzip"}), "compressed"),
        (range_reply(0, b"0123456789", **{"Content-Length": "9"}), "announced 9 bytes"),
        (error(500, "InternalError"), "500 InternalError"),
        (error(400, "RequestTimeout"), "RequestTimeout"),
        (reply(502, b"<html>"), "502"),
    ],
)
def test_an_answer_that_is_not_the_range_is_tried_again(answer, reason):
    with Stub(HEAD, answer) as stub:
        source = S3Source("s3://bucket/m.safetensors", env=stub.env)
        (entry,) = source.entries()
        with pytest.raises(Retry, match=re.escape(reason)):
            source.read_into(entry, 0, memoryview(bytearray(10)), Patience())


@pytest.mark.parametrize(
    "answer",
    [
        range_reply(0, b"0123456789", total=999),
        range_reply(0, b"0123456789", ETag='"2"'),
        error(412, "PreconditionFailed"),
    ],
)
def test_an_answer_of_another_version_ends_the_load(answer):
    with Stub(HEAD, answer) as stub:
        source = S3Source("s3://bucket/m.safetensors", env=stub.env)
        (entry,) = source.entries()
        with pytest.raises(ObjectChanged, match="bytes 0-9"):
            source.read_into(entry, 0, memoryview(bytearray(10)), Patience())


def test_requests_are_pinned_and_signed_and_ask_for_no_compression():
    with Stub(HEAD, range_reply(5, b"0123456789")) as stub:
        source = S3Source("s3://bucket/m.safetensors", env=stub.env)
        (entry,) = source.entries()
        view = bytearray(10)
        source.read_into(entry, 5, memoryview(view), Patience())
    asked = stub.seen[-1].headers
    assert view == b"0123456789"
    assert asked["range"] == "bytes=5-14"
    assert asked["if-match"] == '"1"'
    assert asked["accept-encoding"] == "identity"
    assert asked["authorization"].startswith("AWS4-HMAC-SHA256")


def test_an_object_that_has_become_shorter_is_named():
    with Stub(HEAD, error(416, "InvalidRange")) as stub:
        source = S3Source("s3://bucket/m.safetensors", env=stub.env)
        (entry,) = source.entries()
        with pytest.raises(Unreachable, match=r"m\.safetensors has no bytes 990-999"):
            source.read_into(entry, 990, memoryview(bytearray(10)), Patience())


@pytest.mark.parametrize("asks", ["small", "large"])
def test_credentials_that_have_expired_are_fetched_again_while_it_runs(tmp_path, asks):
    """A credential process: what an agent on the node renews."""
    keys = tmp_path / "keys.json"
    config = tmp_path / "config"
    config.write_text(f"[profile p]\ncredential_process = cat {keys}\n")

    def answer(seen):
        if "OLDKEY" in seen.headers["authorization"] and len(stub.seen) > 1:
            keys.write_text(json.dumps({"Version": 1, "AccessKeyId": "NEWKEY", "SecretAccessKey": "new"}))
            return error(400, "ExpiredToken")
        return HEAD if len(stub.seen) == 1 else range_reply(0, b"0123456789")

    keys.write_text(json.dumps({"Version": 1, "AccessKeyId": "OLDKEY", "SecretAccessKey": "old"}))
    with Stub(answer) as stub:
        env = {"AWS_ENDPOINT_URL": stub.env["AWS_ENDPOINT_URL"], "AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "p"}
        source = S3Source("s3://bucket/m.safetensors", env=env)
        (entry,) = source.entries()
        view = bytearray(10)
        if asks == "large":
            source.read_into(entry, 0, memoryview(view), Patience())
        else:
            view = source.read_small(entry, 0, 10)
    assert bytes(view) == b"0123456789"
    assert [("OLDKEY" in seen.headers["authorization"]) for seen in stub.seen] == [True, True, False]


def test_credentials_that_stay_expired_are_named():
    with Stub(HEAD, error(400, "ExpiredToken")) as stub:
        source = S3Source("s3://bucket/m.safetensors", env=stub.env)
        (entry,) = source.entries()
        with pytest.raises(Forbidden, match="ExpiredToken") as caught:
            source.read_into(entry, 0, memoryview(bytearray(10)), Patience())
        assert "fetch new credentials" in caught.value.hint


def test_a_public_bucket_is_read_without_a_signature():
    with Stub(HEAD, range_reply(0, b"0123456789")) as stub:
        env = {"AWS_ENDPOINT_URL": stub.env["AWS_ENDPOINT_URL"], "RUNAI_STREAMER_S3_UNSIGNED": "1"}
        source = S3Source("s3://bucket/m.safetensors", env=env)
        (entry,) = source.entries()
        source.read_into(entry, 0, memoryview(bytearray(10)), Patience())
    assert all("authorization" not in seen.headers for seen in stub.seen)


@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3://b", "s3://KEY:topsecret@bucket/m", "http://bucket/m"])
def test_a_url_that_names_no_bucket_is_a_usage_error(url):
    with pytest.raises(UsageError) as caught:
        S3Source(url, env={})
    assert "topsecret" not in caught.value.line() + caught.value.object


def test_reading_small_things_survives_passing_faults_and_names_what_lasts(model, range_server):
    server = range_server(model.served)
    source = S3Source("s3://bucket/m", env=server.env)
    entry = source.entries()[0]
    first = server.stats().requests
    server.behaviour.faults = lambda call: range_faults.RESET if call.number_of_key == 1 else None
    server.reset()
    assert len(source.read_small(entry, 0, 1000)) == 1000
    assert first
    server.behaviour.faults = lambda _call: range_faults.INTERNAL_ERROR
    with pytest.raises(Unreachable, match=re.escape("s3://bucket/m/model-0.safetensors, bytes 0-999")):
        source.read_small(entry, 0, 1000)


def test_a_head_that_comes_byte_by_byte_is_given_up():
    """With a meter that demands speed; the fetcher's does."""

    class Impatient(Patience):
        calls = 0

        def advance(self, _size_bytes):
            self.calls += 1
            if self.calls > 3:
                raise Retry("too slow")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = S3Source("s3://bucket/m", env={**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{listener.getsockname()[1]}"})
        ended = threading.Event()

        def drip():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                while not ended.wait(0.02):
                    connection.sendall(b"H")

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(Retry, match="too slow"):
            source.read_into(Entry("x", 100, '"1"'), 0, memoryview(bytearray(10)), Impatient())
        ended.set()
        thread.join()
