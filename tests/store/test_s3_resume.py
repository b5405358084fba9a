"""An upload that was interrupted goes on with the parts that are there, on a real server, and never with parts of another file."""

from __future__ import annotations

import hashlib
import random

import pytest

from glowplug.errors import LocalError, ObjectNotFound, Unreachable
from glowplug.store import open_store, s3_multipart, s3_resume
from glowplug.store.file_slice import FileSlice
from tests.store.stub import Stub, error, reply

PART = 5 * 1024 * 1024  # the least that S3 takes for any part but the last


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(s3_multipart, "SINGLE_LIMIT_BYTES", PART)
    monkeypatch.setattr(s3_multipart, "PART_BYTES", PART)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    path.write_bytes(random.Random(7).randbytes(4 * PART + 1000))
    return path


@pytest.fixture
def store(seaweedfs, request):
    return open_store(f"s3://{seaweedfs.bucket}/resume/{request.node.name}", env=seaweedfs.env)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def interrupted(store, key, path, monkeypatch, *, after):
    """An upload that the network ends after so many parts."""
    send, sent = s3_multipart._send_part, []

    def fail(client, key, upload_id, number, body):
        if len(sent) >= after:
            raise Unreachable("cut")
        sent.append(number)
        return send(client, key, upload_id, number, body)

    with monkeypatch.context() as patch:
        patch.setattr(s3_multipart, "_send_part", fail)
        with pytest.raises(Unreachable, match="cut"):
            store.upload(key, path, sha256=digest(path), lanes=s3_multipart.Lanes(1))


def upload(store, key, path, *, sha256=None):
    parts = []
    store.upload(key, path, sha256=sha256 or digest(path), progress=lambda size, sent: parts.append((size, sent)))
    return sum(size for size, sent in parts if sent), sum(size for size, _ in parts)


def content(store, key):
    data = bytearray(store.head(key).size_bytes)
    store.read_into(key, 0, memoryview(data))
    return bytes(data)


@pytest.mark.s3
def test_an_interrupted_upload_sends_only_what_the_server_has_not_got(store, file, monkeypatch):
    interrupted(store, "a", file, monkeypatch, after=3)
    with pytest.raises(ObjectNotFound):
        store.head("a")
    sent, total = upload(store, "a", file)
    assert (sent, total) == (PART + 1000, file.stat().st_size)
    assert content(store, "a") == file.read_bytes()
    assert store.sha256("a") == digest(file)


@pytest.mark.s3
def test_parts_of_other_content_are_not_used(store, file, tmp_path, monkeypatch):
    other = tmp_path / "other"
    data = bytearray(file.read_bytes())
    data[PART + 5] ^= 1
    other.write_bytes(data)
    interrupted(store, "a", file, monkeypatch, after=3)
    sent, _ = upload(store, "a", other, sha256=digest(file))
    assert sent == 2 * PART + 1000  # the altered part, and those that were not there
    assert content(store, "a") == bytes(data)


@pytest.mark.s3
def test_the_digest_is_that_of_what_was_uploaded_even_after_a_begin_with_another_file(store, file, tmp_path, monkeypatch):
    interrupted(store, "a", file, monkeypatch, after=1)
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes()[:-1] + b"!")
    upload(store, "a", other)
    assert content(store, "a") == other.read_bytes()
    assert store.sha256("a") == digest(other)


@pytest.mark.s3
def test_an_object_of_another_name_that_begins_alike_is_left_alone(store, file, monkeypatch):
    interrupted(store, "a.safetensors.old", file, monkeypatch, after=2)
    sent, total = upload(store, "a.safetensors", file)
    assert sent == total


@pytest.mark.s3
def test_a_small_file_keeps_its_digest_and_a_foreign_one_has_none(store, tmp_path):
    small = tmp_path / "config.json"
    small.write_bytes(b"{}")
    store.upload("config.json", small, sha256=digest(small))
    assert store.sha256("config.json") == digest(small)
    store.put("foreign", b"x")
    assert store.sha256("foreign") == ""
    with pytest.raises(ObjectNotFound):
        store.sha256("nothing")


def test_a_server_that_does_not_list_uploads_gets_them_from_the_beginning(file):
    def answer(seen):
        if seen.method == "GET":
            return error(501, "NotImplemented") if "uploads" in seen.target else error(403, "AccessDenied")
        if seen.method == "POST":
            body = b"<R><UploadId>1</UploadId></R>" if seen.target.endswith("?uploads=") else b'<R><ETag>"w"</ETag></R>'
            return reply(200, body)
        if seen.method == "HEAD":
            return reply(200, Content_Length=str(file.stat().st_size), x_amz_meta_glowplug_sha256=digest(file))
        return reply(200, ETag='"p"')

    with Stub(answer) as stub:
        assert stub.store().upload("k", file, sha256=digest(file)) == '"w"'
    assert sum("partNumber" in target for target in stub.asked) == 5


def test_closed_lanes_stop_an_upload_and_abort_it(file):
    lanes = s3_multipart.Lanes(2)

    def answer(seen):
        if seen.method == "PUT":
            lanes.close()
        return reply(200, b"<R><UploadId>1</UploadId></R>", ETag='"p"')

    with Stub(answer) as stub, pytest.raises(LocalError, match="stopped"):
        stub.store().upload("k", file, sha256=digest(file), lanes=lanes)
    assert sum("partNumber" in target for target in stub.asked) <= 3
    assert stub.asked[-1].startswith("DELETE")


def test_a_part_of_another_length_is_not_read_to_be_compared(file):
    body = FileSlice(-1, str(file), 0, PART)
    assert not s3_resume.matches(s3_resume.Part(PART - 1, '"x"'), body)
    assert not s3_resume.matches(None, body)
