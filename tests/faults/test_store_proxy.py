"""The proxy does to a request exactly what it is told, and nothing to any other."""

from __future__ import annotations

import threading

import pytest

from glowplug.errors import Forbidden, ObjectNotFound, PreconditionFailed, Unreachable
from testbed.range_faults import CORRUPT, DROP, FORBIDDEN, RESET, SHORT, SLOW_DOWN, Fault
from testbed.store_proxy import LOST, RESET_AT_ONCE, on

pytestmark = pytest.mark.s3
DATA = bytes(range(256)) * 40


@pytest.fixture
def store(proxied):
    store = proxied().open()
    store.put("k", DATA)
    return store


def asked(proxy):
    return [(seen.call.method, seen.fault.kind if seen.fault else None, seen.status) for seen in proxy.seen]


def test_without_a_rule_requests_pass_as_they_are_and_are_written_down(proxy, store):
    proxy.forget()
    assert store.get("k").data == DATA
    assert store.head("k").size_bytes == len(DATA)
    assert [info.key for info in store.list("")] == ["k"]
    with pytest.raises(ObjectNotFound):
        store.get("none")
    assert asked(proxy) == [("GET", None, 200), ("HEAD", None, 200), ("GET", None, 200), ("GET", None, 404)]
    assert [seen.call.number for seen in proxy.seen] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fault", "reached"), [(DROP, 0), (SLOW_DOWN, 0), (LOST, 200), (RESET, 200), (RESET_AT_ONCE, 200), (SHORT, 200)]
)
def test_a_get_that_fails_once_is_asked_again(proxy, store, fault, reached):
    proxy.forget(on(fault, "GET", "/k"))
    assert store.get("k").data == DATA
    assert asked(proxy) == [("GET", fault.kind, reached), ("GET", None, 200)]


def test_a_write_whose_answer_is_lost_has_been_done_and_its_repetition_does_not_take_itself_for_another(proxy, store):
    with pytest.raises(PreconditionFailed):
        store.put_if_absent("k", b"other")
    proxy.forget(on(LOST, "PUT", "/new"))
    etag = store.put_if_absent("new", b"ours")
    assert ("PUT", "lost", 200) in asked(proxy)
    assert ("PUT", None, 412) in asked(proxy)
    assert store.get("new") == (b"ours", etag)


def test_a_write_that_is_dropped_has_not_been_done(proxy, store):
    proxy.forget(on(DROP, "PUT", "/new", numbers=()))
    with pytest.raises(Unreachable):
        store.put("new", b"never")
    proxy.forget()
    with pytest.raises(ObjectNotFound):
        store.get("new")


def test_a_byte_that_is_wrong(proxy, store):
    proxy.forget(on(CORRUPT, "GET", "/k"))
    data = store.get("k").data
    assert sum(left != right for left, right in zip(data, DATA, strict=True)) == 1


def test_an_error_that_is_not_the_server_s(proxy, store):
    proxy.forget(on(FORBIDDEN, "GET"))
    with pytest.raises(Forbidden, match="AccessDenied"):
        store.get("k")


def test_two_requests_change_places(proxy, store):
    proxy.forget(on(Fault("hold", seconds=30, after=("PUT", "/second")), "PUT", "/first"))
    first = threading.Thread(target=store.put, args=("first", b"1"))
    first.start()
    store.put("second", b"2")
    first.join(10)
    assert not first.is_alive()
    assert store.head("first").modified_s >= store.head("second").modified_s


def test_a_delay_is_one(proxy, store):
    import time

    proxy.forget(on(Fault("delay", seconds=0.3), "HEAD", "/k"))
    begun = time.monotonic()
    store.head("k")
    assert 0.3 <= time.monotonic() - begun < 5


def test_a_silent_server_lets_go_when_the_proxy_ends(seaweedfs):
    import http.client

    from testbed.store_proxy import StoreProxy

    with StoreProxy(seaweedfs.port, rule=on(Fault("silent"), numbers=())) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.3)
        connection.request("GET", "/")
        with pytest.raises(TimeoutError):
            connection.getresponse()
    connection.close()
    assert asked(proxy) == [("GET", "silent", 0)]
