"""What the S3 store makes of refusals, of broken networks, and of servers that don't do as they say."""

from __future__ import annotations

import hashlib
import socket
import time
from email.utils import formatdate

import pytest

from glowplug.errors import (
    BucketNotFound,
    ConditionalWritesUnsupported,
    Forbidden,
    ObjectChanged,
    ObjectNotFound,
    PreconditionFailed,
    RemoteError,
    Unreachable,
    UsageError,
    WrongRegion,
)
from glowplug.store import open_store, s3_http
from tests.store.stub import CREDENTIALS, Script, Stub, error, reply

OK = reply(200, b"hello", ETag='"1"', Last_Modified=formatdate(1e9, usegmt=True))
LOST = error(412, "PreconditionFailed")
OPERATIONS = {
    "get": lambda store: store.get("k"),
    "head": lambda store: store.head("k"),
    "list": lambda store: list(store.list("")),
    "put": lambda store: store.put("k", b"x"),
    "delete": lambda store: store.delete("k"),
    "read_into": lambda store: store.read_into("k", 0, memoryview(bytearray(5))),
    "put_if_absent": lambda store: store.put_if_absent("k", b"x"),
    "put_if_match": lambda store: store.put_if_match("k", b"x", '"1"'),
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())


# --- servers that send next to nothing


HEAD = b"HTTP/1.1 200 OK\r\nETag: 1\r\n"


@pytest.mark.parametrize("before", [HEAD, HEAD + b"Content-Length: 100000\r\n\r\n"], ids=["head", "body"])
@pytest.mark.parametrize("operation", ["get", "list"])
def test_an_answer_that_drips_is_given_up(monkeypatch, before, operation):
    monkeypatch.setattr(s3_http, "READ_TIMEOUT_S", 0.2)
    with Stub(Script(before, then="drip")) as stub:
        store = stub.store()
        with pytest.raises(Unreachable, match="can't be used after 4 attempts: the answer came at less than") as caught:
            OPERATIONS[operation](store)
        assert str(stub.port) in caught.value.message
        assert len(stub.asked) == 4


def test_the_answer_to_a_write_may_drip(monkeypatch):
    """S3 keeps a connection open with spaces while it works."""
    monkeypatch.setattr(s3_http, "READ_TIMEOUT_S", 0.1)
    body = b"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 25\r\n\r\n"
    with Stub(Script(body, then="drip")) as stub:
        assert stub.store().put("k", b"x") == "1"
        assert len(stub.asked) == 1


# --- a real server's refusals


@pytest.mark.s3
@each_operation
def test_a_wrong_secret_is_named(seaweedfs, operation):
    store = open_store(f"s3://{seaweedfs.bucket}/failures", env=seaweedfs.env | {"AWS_SECRET_ACCESS_KEY": "wrong"})
    with pytest.raises(Forbidden, match="SignatureDoesNotMatch") as caught:
        operation(store)
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.hint
    assert "wrong" not in caught.value.line().replace("wrong-", "")


@pytest.mark.s3
def test_an_unknown_access_key_is_named(seaweedfs):
    store = open_store(f"s3://{seaweedfs.bucket}/failures", env=seaweedfs.env | {"AWS_ACCESS_KEY_ID": "NOBODY"})
    with pytest.raises(Forbidden, match="InvalidAccessKeyId"):
        store.head("k")


@pytest.mark.s3
# SeaweedFS looks at If-Match before it looks for the bucket: put_if_match is told that it has lost.
@pytest.mark.parametrize("operation", [call for name, call in OPERATIONS.items() if name != "put_if_match"])
def test_a_missing_bucket_is_named(seaweedfs, operation):
    store = open_store("s3://no-such-bucket/x", env=seaweedfs.env_of("admin"))
    with pytest.raises(BucketNotFound, match="no-such-bucket"):
        operation(store)


@pytest.mark.s3
@pytest.mark.parametrize("operation", ["put", "put_if_absent", "put_if_match", "delete"])
def test_a_reader_may_not_write(seaweedfs, operation):
    url = f"s3://{seaweedfs.bucket}/failures"
    open_store(url, env=seaweedfs.env).put("k", b"x")
    with pytest.raises(Forbidden, match="AccessDenied") as caught:
        OPERATIONS[operation](open_store(url, env=seaweedfs.env_of("reader")))
    assert "s3:PutObject" in caught.value.hint


@pytest.mark.s3
def test_a_reader_may_read(seaweedfs):
    url = f"s3://{seaweedfs.bucket}/failures"
    open_store(url, env=seaweedfs.env).put("readable", b"x")
    assert open_store(url, env=seaweedfs.env_of("reader")).get("readable").data == b"x"


@pytest.mark.s3
def test_another_bucket_is_forbidden(seaweedfs):
    seaweedfs.create_bucket("private")
    with pytest.raises(Forbidden):
        open_store("s3://private/x", env=seaweedfs.env).get("k")


@pytest.mark.s3
def test_a_certificate_nobody_vouches_for_is_refused_at_once(seaweedfs_tls):
    env = {name: value for name, value in seaweedfs_tls.env.items() if name != "AWS_CA_BUNDLE"}
    started = time.monotonic()
    with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
        open_store(f"s3://{seaweedfs_tls.bucket}/x", env=env).get("k")
    assert "AWS_CA_BUNDLE" in caught.value.hint
    assert time.monotonic() - started < 2
    assert "after" not in str(caught.value)


# --- no way to the server


@each_operation
def test_a_refused_connection_names_host_and_port(operation):
    with Stub(OK) as stub:
        store, port = stub.store(), stub.port
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} .*after 4 attempts: Connection refused"):
        operation(store)
    # Conditional writes prove the server first: that is where they fail.
    assert len(stub.pauses) == 3


def test_an_unknown_host_is_named():
    env = CREDENTIALS | {"AWS_ENDPOINT_URL": "http://no-such-host.invalid:9000"}
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:9000.*can't be resolved"):
        open_store("s3://bucket/x", env=env).get("k")


def test_a_host_that_never_answers_costs_two_timeouts(monkeypatch):
    monkeypatch.setattr(s3_http, "CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)  # noqa: FBT003  the socket's own signature
            filler.connect_ex(full.getsockname())
        env = CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{full.getsockname()[1]}"}
        started = time.monotonic()
        with pytest.raises(Unreachable, match="after 2 attempts: no answer in time"):
            open_store("s3://bucket/x", env=env).get("k")
        assert 0.4 <= time.monotonic() - started < 2
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"])
def test_a_server_that_falls_silent_is_given_up(monkeypatch, sent):
    monkeypatch.setattr(s3_http, "READ_TIMEOUT_S", 0.1)
    with Stub(Script(sent, "stall")) as stub, pytest.raises(Unreachable, match="after 4 attempts: no answer in time"):
        stub.store().get("k")
    assert len(stub.seen) == 4


def test_no_credentials_names_the_chain(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    env = {
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    with pytest.raises(Forbidden, match="no credentials") as caught:
        open_store("s3://bucket/x", env=env).get("k")
    assert "IRSA" in caught.value.hint
    assert "Pod Identity" in caught.value.hint


def test_a_ca_bundle_that_is_not_there_is_a_usage_error():
    env = CREDENTIALS | {"AWS_ENDPOINT_URL": "https://127.0.0.1:1", "AWS_CA_BUNDLE": "/nonexistent.pem"}
    with pytest.raises(UsageError, match=r"AWS_CA_BUNDLE: /nonexistent\.pem"):
        open_store("s3://bucket/x", env=env).get("k")


# --- Amazon's refusals


@pytest.mark.parametrize(
    "answer",
    [
        error(301, "PermanentRedirect", x_amz_bucket_region="ap-south-1"),
        error(400, "AuthorizationHeaderMalformed", "<Region>ap-south-1</Region>"),
        error(400, "IllegalLocationConstraintException", x_amz_bucket_region="ap-south-1"),
    ],
)
@each_operation
def test_the_right_region_is_named(operation, answer):
    def as_amazon(seen):
        if seen.method != "HEAD":
            return answer
        return Script(answer.data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")

    with Stub(as_amazon) as stub, pytest.raises(WrongRegion, match="bucket lives in ap-south-1, not in eu-west-1") as caught:
        operation(stub.store())
    assert caught.value.hint == "set AWS_REGION=ap-south-1"


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (403, "ExpiredToken", Forbidden, "session token has expired"),
        (400, "ExpiredToken", Forbidden, "session token has expired"),
        (403, "AccessDenied", Forbidden, "s3:ListBucket"),
        (404, "NoSuchBucket", BucketNotFound, "create it"),
        (404, "NoSuchKey", ObjectNotFound, ""),
    ],
)
def test_head_has_no_body_so_a_get_finds_the_words(status, code, kind, says):
    bare = Script(f"HTTP/1.1 {status} X\r\nContent-Length: 200\r\n\r\n".encode())
    with Stub(bare, error(status, code)) as stub, pytest.raises(kind) as caught:
        stub.store().head("k")
    assert says in caught.value.hint
    assert stub.asked == ["HEAD /bucket/pre/k", "GET /bucket/pre/k"]


def test_a_missing_object_of_a_bucket_known_to_exist_costs_one_request():
    with Stub(OK, reply(404)) as stub:
        store = stub.store()
        store.get("there")
        with pytest.raises(ObjectNotFound, match="s3://bucket/pre/gone"):
            store.head("gone")
    assert stub.asked == ["GET /bucket/pre/there", "HEAD /bucket/pre/gone"]


def test_a_skewed_clock_is_told_and_not_tried_again():
    with (
        Stub(error(403, "RequestTimeTooSkewed", Date="Mon, 01 Jan 2024 00:00:00 GMT")) as stub,
        pytest.raises(Forbidden, match="server's clock is Mon, 01 Jan 2024") as caught,
    ):
        stub.store().get("k")
    assert "clock" in caught.value.hint
    assert len(stub.seen) == 1


def test_an_unknown_refusal_is_told_as_it_came():
    with (
        Stub(error(405, "MethodNotAllowed")) as stub,
        pytest.raises(RemoteError, match="405 MethodNotAllowed the text of MethodNotAllowed"),
    ):
        stub.store().get("k")


@pytest.mark.parametrize("operation", ["head", "list"])
def test_something_that_is_not_s3_is_called_so(operation):
    with Stub(reply(200, b"" if operation == "head" else b"<html>Welcome to nginx!")) as stub:
        with pytest.raises(RemoteError, match="does not answer as an S3 server does") as caught:
            OPERATIONS[operation](stub.store())
        assert "AWS_ENDPOINT_URL" in caught.value.hint


def test_something_that_is_not_http_is_called_so():
    with Stub(Script(b"SSH-2.0-OpenSSH_9.2\r\n", "close")) as stub, pytest.raises(Unreachable, match="not HTTP"):
        stub.store().get("k")


# --- trying again


@pytest.mark.parametrize(
    "first",
    [
        error(503, "SlowDown"),
        error(500, "InternalError"),
        reply(429),
        error(400, "RequestTimeout"),
        error(409, "OperationAborted"),
        Script(b"", "close"),
        Script(b"", "reset"),
        Script(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "close"),
        Script(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "reset"),
    ],
    ids=["503", "500", "429", "408", "409", "closed", "reset", "cut short", "reset in the body"],
)
def test_a_passing_fault_is_tried_again(first):
    with Stub(first, OK) as stub:
        assert stub.store().get("k") == (b"hello", '"1"')
    assert len(stub.seen) == 2
    assert len(stub.pauses) == 1


def test_a_lasting_fault_is_given_up_after_three_retries_with_growing_pauses():
    with (
        Stub(error(503, "SlowDown")) as stub,
        pytest.raises(Unreachable, match="after 4 attempts: it answers 503 SlowDown") as caught,
    ):
        stub.store().get("k")
    assert "overloaded" in caught.value.hint
    assert len(stub.seen) == 4
    assert all(0 <= pause <= bound for pause, bound in zip(stub.pauses, [0.2, 0.4, 0.8], strict=True))


def test_a_kept_connection_that_the_server_has_closed_is_replaced_without_a_pause():
    with Stub(Script(OK.data, "close"), OK) as stub:
        store = stub.store()
        store.get("k")
        time.sleep(0.1)
        store.get("k")
    assert stub.pauses == []


def test_connections_are_kept():
    with Stub(OK) as stub:
        store = stub.store()
        for _ in range(5):
            store.get("k")
        assert len(stub._open) == 1


def test_a_range_that_breaks_off_is_read_again_from_its_beginning():
    part = b"HTTP/1.1 206 X\r\nContent-Length: 8\r\nContent-Range: bytes 2-9/20\r\n\r\n"
    with Stub(Script(part + b"XXXX", "reset"), Script(part + b"23456789")) as stub:
        buffer = bytearray(8)
        assert stub.store().read_into("k", 2, memoryview(buffer), if_match='"1"') == 20
    assert buffer == b"23456789"
    assert [seen.headers["range"] for seen in stub.seen] == ["bytes=2-9"] * 2
    assert [seen.headers["if-match"] for seen in stub.seen] == ['"1"'] * 2


def test_a_range_that_always_breaks_off_is_an_error():
    part = Script(b"HTTP/1.1 206 X\r\nContent-Length: 8\r\nContent-Range: bytes 2-9/20\r\n\r\nXXXX", "close")
    with Stub(part) as stub, pytest.raises(Unreachable, match="cut short"):
        stub.store().read_into("k", 2, memoryview(bytearray(8)))


@pytest.mark.parametrize("content_range", ["bytes 0-7/20", "bytes 2-8/9", "", "items 2-9/20"])
def test_another_range_than_the_one_asked_for_is_an_error(content_range):
    answer = reply(206, b"01234567", Content_Range=content_range)
    with Stub(answer) as stub, pytest.raises(Unreachable, match="ends before the range"):
        stub.store().read_into("k", 2, memoryview(bytearray(8)))


def test_a_server_without_ranges_is_an_error():
    with Stub(reply(200, b"0123456789")) as stub, pytest.raises(Unreachable, match="ignores the range"):
        stub.store().read_into("k", 2, memoryview(bytearray(8)))


def test_the_whole_object_in_place_of_a_range_that_is_the_whole_object_is_fine():
    with Stub(reply(200, b"0123456789")) as stub:
        buffer = bytearray(10)
        assert stub.store().read_into("k", 0, memoryview(buffer)) == 10
    assert buffer == b"0123456789"


@pytest.mark.parametrize("total", ["*", "", "twenty", "9" * 5000])
def test_a_server_that_does_not_tell_the_whole_length_is_fine(total):
    with Stub(reply(206, b"23456789", Content_Range=f"bytes 2-9/{total}")) as stub:
        buffer = bytearray(8)
        assert stub.store().read_into("k", 2, memoryview(buffer)) is None
    assert buffer == b"23456789"


def test_a_changed_object_is_told_from_a_lost_write():
    with Stub(LOST) as stub, pytest.raises(ObjectChanged):
        stub.store().read_into("k", 0, memoryview(bytearray(1)), if_match='"old"')


def test_a_refusal_in_the_middle_of_a_large_body_is_the_refusal_not_a_broken_pipe(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(50_000_000))
    refusal = Script(error(403, "AccessDenied").data, "keep")
    with Stub(refusal, read_bodies=False) as stub, pytest.raises((Forbidden, Unreachable)) as caught:
        stub.store().put_file("k", file, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    assert isinstance(caught.value, Forbidden)


# --- conditional writes


@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize("answer", [error(501, "NotImplemented"), error(400, "InvalidArgument"), reply(200, ETag='"1"')])
def test_a_server_without_conditional_writes_is_found_out_before_anything_is_written(operation, answer):
    with Stub(answer) as stub, pytest.raises(ConditionalWritesUnsupported, match=rf"127\.0\.0\.1:{stub.port}"):
        OPERATIONS[operation](stub.store())
    assert {seen.target for seen in stub.seen} == {"/bucket/pre/.glowplug/conditional-writes"}


def test_the_proof_is_asked_for_once():
    with Stub(LOST, reply(200, ETag='"1"')) as stub:
        store = stub.store()
        store.put_if_absent("a", b"1")
        store.put_if_absent("b", b"2")
    assert stub.asked == [
        "PUT /bucket/pre/.glowplug/conditional-writes",
        "PUT /bucket/pre/a",
        "PUT /bucket/pre/b",
    ]


def test_amazon_is_not_asked_for_a_proof(monkeypatch):
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **more: resolve("127.0.0.1", *rest, **more))
    with Stub(reply(200, ETag='"1"')) as stub:
        stub.store(AWS_ENDPOINT_URL=f"http://s3.eu-west-1.amazonaws.com:{stub.port}").put_if_absent("a", b"1")
    assert stub.asked == ["PUT /bucket/pre/a"]


@pytest.mark.parametrize("accident", [Script(b"", "reset"), Script(b"", "close"), error(500, "InternalError")])
def test_a_write_whose_answer_was_lost_finds_that_it_has_won(accident):
    marks = []

    def accept_and_lose_the_answer(seen):
        marks.append(seen.headers["x-amz-meta-glowplug-write"])
        return accident

    def head(_):
        return reply(200, ETag='"mine"', x_amz_meta_glowplug_write=marks[0])

    with Stub(LOST, accept_and_lose_the_answer, LOST, head) as stub:
        assert stub.store().put_if_absent("lease", b"me") == '"mine"'
    assert stub.asked[1:] == ["PUT /bucket/pre/lease", "PUT /bucket/pre/lease", "HEAD /bucket/pre/lease"]


def test_a_write_whose_answer_was_lost_finds_that_another_has_won():
    other = reply(200, ETag='"theirs"', x_amz_meta_glowplug_write="another mark")
    with Stub(LOST, Script(b"", "reset"), LOST, other) as stub, pytest.raises(PreconditionFailed, match="lease"):
        stub.store().put_if_absent("lease", b"me")


def test_a_plain_loss_asks_no_further():
    with Stub(LOST) as stub, pytest.raises(PreconditionFailed):
        stub.store().put_if_absent("lease", b"me")
    assert stub.asked == ["PUT /bucket/pre/.glowplug/conditional-writes", "PUT /bucket/pre/lease"]


def test_a_conflict_with_another_writer_is_tried_again():
    with Stub(LOST, error(409, "ConditionalRequestConflict"), reply(200, ETag='"1"')) as stub:
        assert stub.store().put_if_match("p", b"x", '"0"') == '"1"'


def test_a_condition_on_a_missing_object_is_lost_not_an_unknown_key():
    with Stub(error(404, "NoSuchKey")) as stub, pytest.raises(PreconditionFailed):
        stub.store().put_if_match("p", b"x", '"0"')


# --- lists


def test_foreign_objects_are_not_listed():
    keys = ["pre/a", "pre/", "pre/with+space", "pre/%C3%A4", "pre/.glowplug/conditional-writes", "pre/b//c", "elsewhere"]
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;1&quot;</ETag><Size>7</Size></Contents>"
        for key in keys
    )
    document = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>'
    with Stub(reply(200, document.encode())) as stub:
        (info,) = stub.store().list("")
    assert (info.key, info.size_bytes, info.etag, info.modified_s) == ("a", 7, '"1"', 1767323045.0)
    assert stub.asked == ["GET /bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=pre%2F"]
