"""Uploads in parts: whole or not at all, and nothing left behind."""

from __future__ import annotations

import hashlib
import itertools
import threading

import pytest

from glowplug.errors import Forbidden, LocalError, Unreachable
from glowplug.store import s3_multipart
from glowplug.store.file_slice import FileSlice
from tests.store.stub import Script, Stub, error, reply

CREATED = reply(200, b"<InitiateMultipartUploadResult><UploadId>id&amp;1</UploadId></InitiateMultipartUploadResult>")
COMPLETED = reply(200, b'  <CompleteMultipartUploadResult><ETag>"whole-3"</ETag></CompleteMultipartUploadResult>')


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(s3_multipart, "SINGLE_LIMIT_BYTES", 1000)
    monkeypatch.setattr(s3_multipart, "PART_BYTES", 1000)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pack"
    path.write_bytes(bytes(range(250)) * 10)
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Server:
    """A server's side of an upload; ``faults`` maps a part number or an operation to the answers given before the good one."""

    def __init__(self, **faults):
        self.faults = {name: list(answers) for name, answers in faults.items()}
        self.parts = {}
        self.lock = threading.Lock()

    def __call__(self, seen):
        name = self.name(seen)
        with self.lock:
            if self.faults.get(name):
                return self.faults[name].pop(0)
        if name == "create":
            return CREATED
        if name == "complete":
            return COMPLETED
        if name == "abort":
            return reply(204)
        if name == "head":
            return reply(200, Content_Length="2500", ETag='"whole-3"')
        with self.lock:
            self.parts[name] = seen.body
        return reply(200, ETag=f'"{name}"')

    @staticmethod
    def name(seen):
        if seen.method == "POST":
            return "create" if seen.target.endswith("?uploads=") else "complete"
        if "partNumber=" in seen.target:
            return "part" + seen.target.partition("partNumber=")[2].partition("&")[0]
        return {"DELETE": "abort", "HEAD": "head"}[seen.method]

    def names(self, stub):
        return [self.name(seen) for seen in stub.seen]


def test_the_parts_make_up_the_file_in_order(file):
    server = Server()
    with Stub(server) as stub:
        assert stub.store().put_file("k", file, sha256=digest(file)) == '"whole-3"'
    assert b"".join(server.parts[f"part{n}"] for n in (1, 2, 3)) == file.read_bytes()
    last = stub.seen[-1]
    assert last.target == "/bucket/pre/k?uploadId=id%261"
    assert last.body.index(b'"part1"') < last.body.index(b'"part2"') < last.body.index(b'"part3"')


def test_each_part_is_signed_with_its_own_digest(file):
    server = Server()
    with Stub(server) as stub:
        stub.store().put_file("k", file, sha256=digest(file))
    for seen in stub.seen:
        assert seen.headers["x-amz-content-sha256"] == hashlib.sha256(seen.body).hexdigest()


def test_a_part_that_broke_is_sent_again_whole(file):
    server = Server(part2=[Script(b"", "reset"), error(503, "SlowDown")])
    with Stub(server) as stub:
        stub.store().put_file("k", file, sha256=digest(file))
    assert server.parts["part2"] == file.read_bytes()[1000:2000]


def test_a_refused_part_aborts_the_upload(file):
    server = Server(part2=[error(403, "AccessDenied")])
    with Stub(server) as stub, pytest.raises(Forbidden, match="s3://bucket/pre/k"):
        stub.store().put_file("k", file, sha256=digest(file))
    assert server.names(stub)[-1] == "abort"
    assert "complete" not in server.names(stub)


def test_the_first_error_is_told_even_if_the_abort_fails(file):
    server = Server(part1=[error(403, "AccessDenied")], abort=[error(403, "OtherTrouble")])
    with Stub(server) as stub, pytest.raises(Forbidden, match="AccessDenied"):
        stub.store().put_file("k", file, sha256=digest(file))


def test_an_error_inside_a_success_is_an_error(file):
    server = Server(complete=[error(200, "InvalidPart")])
    with Stub(server) as stub, pytest.raises(Unreachable, match="InvalidPart"):
        stub.store().put_file("k", file, sha256=digest(file))
    assert server.names(stub)[-1] == "abort"


@pytest.mark.parametrize("first", [error(200, "InternalError"), reply(200, b"   ")], ids=["internal error", "nothing"])
def test_a_passing_error_inside_a_success_is_tried_again(file, first):
    server = Server(complete=[first])
    with Stub(server) as stub:
        assert stub.store().put_file("k", file, sha256=digest(file)) == '"whole-3"'


def test_a_completion_whose_answer_was_lost_is_found_completed(file):
    server = Server(complete=[Script(b"", "reset"), error(404, "NoSuchUpload")])
    with Stub(server) as stub:
        assert stub.store().put_file("k", file, sha256=digest(file)) == '"whole-3"'
    assert "abort" not in server.names(stub)


def test_a_file_that_shrinks_is_an_error_and_the_upload_is_aborted(file, monkeypatch):
    real = FileSlice.sha256

    def shrink_then_hash(part):
        if part.start == 1000:
            file.write_bytes(b"short")
        return real(part)

    monkeypatch.setattr(FileSlice, "sha256", shrink_then_hash)
    server = Server()
    with Stub(server) as stub, pytest.raises(LocalError, match="became shorter"):
        stub.store().put_file("k", file, sha256="0" * 64)
    assert server.names(stub)[-1] == "abort"


def test_a_missing_file_is_named(tmp_path):
    with Stub(reply(200)) as stub, pytest.raises(LocalError, match="no-such-file"):
        stub.store().put_file("k", tmp_path / "no-such-file", sha256="0" * 64)
    assert stub.seen == []


def test_a_huge_file_takes_at_most_ten_thousand_parts():
    parts = s3_multipart._plan(123_456_789)
    assert len(parts) <= 10_000
    assert sum(size for _, size in parts) == 123_456_789
    assert all(start == before + size for (before, size), (start, _) in itertools.pairwise(parts))
