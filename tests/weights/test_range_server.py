"""The server that the tests of the weights rely on: it serves as S3 does, and it really does wrong what it is told to."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import time

import pytest

from testbed import certs, range_faults
from testbed.range_faults import Fault
from testbed.range_server import HOST, RangeServerProcess

CONTENT = os.urandom(300_000)


@pytest.fixture
def folder(tmp_path):
    for key in ("m/a.bin", "m/b c+d.bin", "m/sub/e.bin", "other.bin"):
        path = tmp_path / "served" / "bucket" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    return tmp_path / "served"


def get(server, path="/bucket/m/a.bin", *, span="", method="GET", timeout_s=10.0, **headers):
    """The answer, and as much of its body as came."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers | ({"Range": f"bytes={span}"} if span else {}))
        answer = connection.getresponse()
        return answer, answer.read()


def client(server):
    import botocore.config
    import botocore.session

    session = botocore.session.Session()
    session.set_credentials("anybody", "anything")
    retries = {"total_max_attempts": 1}
    config = botocore.config.Config(retries=retries, s3={"addressing_style": "path"})
    return session.create_client("s3", region_name="us-east-1", endpoint_url=server.endpoint_url, config=config)


@pytest.mark.parametrize(
    ("span", "start", "end"),
    [("0-0", 0, 1), ("1000-299999", 1000, 300_000), ("299990-", 299_990, 300_000), ("-10", 299_990, 300_000)],
)
def test_a_range_is_answered_with_206_and_says_which(range_server, folder, span, start, end):
    answer, body = get(range_server(folder), span=span)
    assert answer.status == 206
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/300000"
    assert body == CONTENT[start:end]


def test_a_connection_is_kept_over_many_requests(range_server, folder):
    server = range_server(folder)
    connection = http.client.HTTPConnection(HOST, server.port)
    with contextlib.closing(connection):
        for method, path, status in [
            ("GET", "m/a.bin", 200),
            ("HEAD", "m/a.bin", 200),
            ("GET", "none", 404),
            ("GET", "m/a.bin", 200),
        ]:
            connection.request(method, f"/bucket/{path}")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    assert server.stats().connections == 1


def test_a_range_past_the_end_is_416(range_server, folder):
    assert get(range_server(folder), span="300000-300010")[0].status == 416


def test_if_match_pins_the_content(range_server, folder):
    server = range_server(folder)
    etag = get(server, method="HEAD")[0].headers["ETag"]
    assert get(server, span="0-9", **{"If-Match": etag})[0].status == 206
    (folder / "bucket/m/a.bin").write_bytes(CONTENT[::-1])
    assert get(server, span="0-9", **{"If-Match": etag})[0].status == 412


def test_botocore_finds_reads_and_lists_objects(range_server, folder):
    s3 = client(range_server(folder))
    assert s3.head_bucket(Bucket="bucket")["ResponseMetadata"]["HTTPStatusCode"] == 200
    s3.get_bucket_location(Bucket="bucket")
    whole = s3.get_object(Bucket="bucket", Key="m/b c+d.bin")
    assert whole["Body"].read() == CONTENT
    listing = s3.list_objects_v2(Bucket="bucket", Prefix="m/", Delimiter="/")
    assert [(row["Key"], row["Size"], row["ETag"]) for row in listing["Contents"]] == [
        ("m/a.bin", 300_000, s3.head_object(Bucket="bucket", Key="m/a.bin")["ETag"]),
        ("m/b c+d.bin", 300_000, whole["ETag"]),
    ]
    assert [row["Prefix"] for row in listing["CommonPrefixes"]] == ["m/sub/"]


def test_a_long_listing_comes_in_pages(range_server, folder):
    pages = (
        client(range_server(folder)).get_paginator("list_objects_v2").paginate(Bucket="bucket", PaginationConfig={"PageSize": 1})
    )
    assert [[row["Key"] for row in page["Contents"]] for page in pages] == [
        ["m/a.bin"],
        ["m/b c+d.bin"],
        ["m/sub/e.bin"],
        ["other.bin"],
    ]


def test_only_the_named_access_key_may_read(range_server, folder):
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError, match="403"):
        client(range_server(folder, access_key="somebody")).head_object(Bucket="bucket", Key="other.bin")
    client(range_server(folder, access_key="anybody")).head_object(Bucket="bucket", Key="other.bin")


def test_nothing_outside_the_folder_is_served(range_server, folder):
    (folder.parent / "secret").write_bytes(b"no")
    assert get(range_server(folder), "/bucket/../../secret")[0].status == 404


def test_tls_is_served_with_the_given_certificate(range_server, folder, tmp_path):
    made = certs.make(tmp_path / "certificates", [HOST])
    server = range_server(folder, certificates=made)
    connection = http.client.HTTPSConnection(HOST, server.port, context=ssl.create_default_context(cafile=str(made.ca)))
    with contextlib.closing(connection):
        connection.request("GET", "/bucket/other.bin")
        assert connection.getresponse().read() == CONTENT


def only(number, fault):
    return lambda call: fault if call.number == number else None


@pytest.mark.parametrize(("fault", "status"), [("500", 500), ("503", 503), ("403", 403), ("404", 404)])
def test_an_error_is_answered_when_told(range_server, folder, fault, status):
    server = range_server(folder, faults=only(2, range_faults.NAMED[fault]))
    assert [get(server, span="0-99")[0].status for _ in range(3)] == [206, status, 206]
    assert server.stats().faults == {"status": 1}


def test_a_range_may_be_answered_with_the_whole_object(range_server, folder):
    answer, body = get(range_server(folder, faults=only(1, range_faults.WHOLE)), span="5-9")
    assert (answer.status, answer.headers["Content-Range"], body) == (200, None, CONTENT)


@pytest.mark.parametrize("length", [None, "100000"])
def test_a_range_may_come_in_chunks(range_server, folder, length):
    fault = range_faults.CHUNKED if length is None else range_faults.CHUNKED_WITH_LENGTH
    answer, body = get(range_server(folder, faults=only(1, fault)), span="5-100004")
    assert (answer.status, answer.headers["Transfer-Encoding"], answer.headers["Content-Length"]) == (206, "chunked", length)
    assert body == CONTENT[5:100_005]


def test_another_range_may_come(range_server, folder):
    answer, body = get(range_server(folder, faults=only(1, range_faults.WRONG_RANGE)), span="5-9")
    assert (answer.status, answer.headers["Content-Range"], body) == (206, "bytes 6-10/300000", CONTENT[6:11])


def test_a_byte_may_be_wrong(range_server, folder):
    _, body = get(range_server(folder, faults=only(1, range_faults.CORRUPT)), span="0-99")
    assert [position for position in range(100) if body[position] != CONTENT[position]] == [50]


def test_an_object_may_change_from_a_request_on(range_server, folder):
    server = range_server(folder, faults=lambda call: range_faults.CHANGED if call.number > 1 else None)
    etag = get(server, span="0-9")[0].headers["ETag"]
    answer, body = get(server, span="0-9")
    assert answer.headers["ETag"] != etag
    assert body != CONTENT[:10]
    assert get(server, span="0-9", **{"If-Match": etag})[0].status == 412


def test_a_short_body_ends_in_good_order(range_server, folder):
    with pytest.raises(http.client.IncompleteRead) as caught:
        get(range_server(folder, faults=only(1, range_faults.SHORT)), span="0-999")
    assert len(caught.value.partial) == 500


def test_a_reset_ends_a_body(range_server, folder):
    with pytest.raises(ConnectionResetError):
        get(range_server(folder, faults=only(1, range_faults.RESET)))


def test_a_connection_may_be_dropped_before_the_answer(range_server, folder):
    with pytest.raises(http.client.RemoteDisconnected):
        get(range_server(folder, faults=only(1, range_faults.DROP)))


@pytest.mark.parametrize(("kind", "most"), [("stall", 500), ("drip", 510)])
def test_a_body_stops_in_its_middle_until_the_client_goes(range_server, folder, kind, most):
    server = range_server(folder, faults=only(1, Fault(kind)))
    with socket.create_connection((HOST, server.port), timeout=0.2) as sock:
        sock.sendall(b"GET /bucket/m/a.bin HTTP/1.1\r\nRange: bytes=0-999\r\n\r\n")
        received = b""
        with contextlib.suppress(TimeoutError):
            for _ in range(8):
                received += sock.recv(4096)
        assert 500 <= len(received.partition(b"\r\n\r\n")[2]) <= most
    assert get(server)[1] == CONTENT


def test_a_server_with_a_stalled_connection_stops(range_server, folder):
    server = range_server(folder, faults=only(1, range_faults.SILENT))
    with socket.create_connection((HOST, server.port), timeout=10) as sock:
        sock.sendall(b"GET /bucket/m/a.bin HTTP/1.1\r\n\r\n")
        while not server.stats().faults:
            time.sleep(0.01)
        server.stop()
        assert sock.recv(1) == b""


def test_the_bandwidth_is_kept(range_server, folder):
    begun = time.monotonic()
    get(range_server(folder, bandwidth=1_000_000))
    assert time.monotonic() - begun > 0.25


def test_what_is_sent_is_counted(range_server, folder):
    server = range_server(folder)
    get(server, span="0-99")
    get(server, "/bucket/other.bin")
    stats = server.stats()
    assert (stats.requests, stats.body_bytes, stats.most_at_once) == (2, 300_100, 1)
    assert stats.keys == {"bucket/m/a.bin": (1, 100), "bucket/other.bin": (1, 300_000)}
    server.reset()
    assert server.stats().body_bytes == 0


def test_it_runs_as_a_process_with_faults_by_chance(folder):
    with RangeServerProcess(folder, faults={"500": 0.5}, seed=3) as server:
        statuses = [get(server, span="0-9")[0].status for _ in range(20)]
        assert set(statuses) == {206, 500}
        assert server.stats().statuses == {"206": statuses.count(206), "500": statuses.count(500)}
        port = server.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=1)


def test_the_same_seed_draws_the_same_faults():
    def drawn(seed):
        choose = range_faults.by_chance({"stall": 0.1, "reset": 0.1}, seed=seed)
        call = range_faults.Call(1, 1, "GET", "b", "k", 0, 1, ranged=True, headers={})
        return [fault.kind if (fault := choose(call)) else None for _ in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 10 <= drawn(1).count("stall") <= 35
