"""A load from servers that really do wrong: each ends whole, byte for byte, or in one error that says what and where."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from dataclasses import replace

import pytest

from glowplug.errors import Forbidden, ObjectChanged, ObjectNotFound, Unreachable
from glowplug.weights.fetch import rivals
from glowplug.weights.fetch.fetcher import Fetcher
from glowplug.weights.sources.s3 import S3Source
from testbed import certs, range_faults
from testbed.range_faults import Fault, by_chance
from tests.store.stub import CREDENTIALS
from tests.weights.fetches import KIB, MIB, QUICK, Load, Model, fetch_threads, loading

URL = "s3://bucket/m"
PASSING = [
    range_faults.STALL,
    range_faults.DRIP,
    range_faults.RESET,
    range_faults.SHORT,
    range_faults.DROP,
    range_faults.SILENT,
    range_faults.WHOLE,
    range_faults.WRONG_RANGE,
    range_faults.CHUNKED,
    range_faults.CHUNKED_WITH_LENGTH,
    range_faults.INTERNAL_ERROR,
    range_faults.SLOW_DOWN,
    Fault("status", status=429, code="TooManyRequests"),
]
each_fault = pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.code if fault.kind == "status" else fault.kind)


@pytest.fixture
def model(tmp_path):
    return Model(tmp_path)


def load(model, server, settings=QUICK, **how):
    return loading(model, S3Source(URL, env=server.env), settings, **how)


def of_load(call):
    """A range of a load, not the look at the file before it."""
    return call.ranged and call.end - call.start > 1


def once(fault, which=3):
    """The fault at one request of the load, counted from 1."""
    lock, seen = threading.Lock(), []

    def choose(call):
        with lock:
            seen.extend([call] if of_load(call) else [])
            return fault if of_load(call) and len(seen) == which else None

    return choose


def always(fault, at):
    """The fault at every request that begins at this byte or, having gone on from there, within the same range."""
    return lambda call: fault if of_load(call) and at <= call.start < at + 64 * KIB else None


@each_fault
@pytest.mark.parametrize("hedge", [False, True], ids=["alone", "hedged"])
def test_a_passing_fault_costs_an_attempt_and_no_byte(model, range_server, fault, hedge):
    server = range_server(model.served, faults=once(fault))
    with load(model, server, QUICK.over(hedge=hedge)) as running:
        stats = running.read()
    assert server.stats().faults == {fault.kind: 1}
    if fault.kind != "drop":  # a kept connection that ends without an answer is no failure: it is asked once more, at once
        assert stats.retries + stats.hedges >= 1
    if not hedge:  # what says nothing more is ended by the low-speed limit
        assert stats.stalls == (fault.kind in {"stall", "drip", "silent"})
    assert stats.bytes == model.size_bytes
    assert running.told == sorted(set(running.told))
    assert running.told[-1] == running.plan.length


@each_fault
def test_a_lasting_fault_ends_in_one_error_that_names_object_and_range(model, range_server, fault):
    start = model.starts[0] + 128 * KIB
    server = range_server(model.served, faults=always(replace(fault, share=0.05), start))
    with load(model, server, QUICK.over(hedge=False, attempts=2, low_speed_window_s=0.3)) as running:
        with pytest.raises(Unreachable) as caught:
            running.read()
        assert running.errors == [caught.value]
        with pytest.raises(Unreachable):
            running.fetcher.wait(running.plan.length)
    assert "s3://bucket/m/model.safetensors" in caught.value.message
    assert f"bytes {start}-" in caught.value.message
    assert "2 failed attempts" in caught.value.message
    odd = {"whole", "wrong-range", "chunked", "chunked-with-length"}
    assert ("a proxy on the way to it, answers ranges wrongly" in caught.value.hint) is (fault.kind in odd)
    assert caught.value.hint


def test_an_attempt_goes_on_where_the_last_one_stopped(model, range_server):
    server = range_server(model.served, faults=once(Fault("reset", share=0.75)))
    with load(model, server) as running:
        stats = running.read()
    assert stats.retries == 1
    assert stats.bytes_read == model.size_bytes


def test_a_retry_takes_a_new_connection(model, range_server):
    server = range_server(model.served, faults=once(range_faults.INTERNAL_ERROR))
    with load(model, server, QUICK.over(concurrency=1)) as running:
        running.read()
    # One for the listing, one for the load until the fault, one after it.
    assert server.stats().connections == 3


def test_connections_are_kept_from_range_to_range(model, range_server):
    server = range_server(model.served)
    with load(model, server, QUICK.over(concurrency=2)) as running:
        running.read()
    assert server.stats().connections <= 3


@pytest.mark.parametrize(("tensors", "most"), [(8, 5), (1, 3)], ids=["more ranges", "fewer ranges"])
def test_what_was_on_its_way_at_once_is_counted_as_the_server_saw_it(tmp_path, range_server, tensors, most):
    model = Model(tmp_path, tensors=tensors, tensor_bytes=192 * KIB)
    server = range_server(model.served, latency_s=0.05)
    with loading(model, S3Source(URL, env=server.env), QUICK.over(concurrency=5, hedge=False)) as running:
        stats = running.read()
    assert (stats.concurrency, stats.most_at_once) == (5, most)
    assert server.stats().most_at_once == most


def test_an_attempt_that_takes_too_long_is_ended_even_if_it_is_not_slow(model, range_server):
    server = range_server(model.served, faults=once(Fault("drip", share=0.1, bytes_per_s=200)))
    settings = QUICK.over(hedge=False, low_speed_bytes_per_s=1, range_timeout_s=0.5)
    with load(model, server, settings) as running:
        assert running.read().stalls == 1


def test_a_server_that_asks_for_less_gets_fewer_requests_at_once(model, range_server):
    server = range_server(model.served, faults=once(range_faults.SLOW_DOWN, which=2))
    with load(model, server, QUICK.over(concurrency=8)) as running:
        stats = running.read()
    assert stats.throttled == 1
    assert stats.concurrency < 8


def test_a_server_that_always_asks_for_less_is_named_with_the_setting_to_change(model, range_server):
    server = range_server(model.served, faults=lambda call: range_faults.SLOW_DOWN if of_load(call) else None)
    with load(model, server, QUICK.over(attempts=2)) as running, pytest.raises(Unreachable, match="503 SlowDown") as caught:
        running.read()
    assert "GLOWPLUG_WEIGHTS_CONCURRENCY" in caught.value.hint


def test_a_missing_object_is_named(model, range_server):
    server = range_server(model.served, faults=lambda call: range_faults.NOT_FOUND if of_load(call) else None)
    with load(model, server) as running, pytest.raises(ObjectNotFound, match=re.escape("s3://bucket/m/model.safetensors")):
        running.read()


def test_a_refusal_is_named(model, range_server):
    server = range_server(model.served, faults=lambda call: range_faults.FORBIDDEN if of_load(call) else None)
    with load(model, server) as running, pytest.raises(Forbidden, match="AccessDenied") as caught:
        running.read()
    assert caught.value.object == "s3://bucket/m/model.safetensors"
    assert "s3:GetObject" in caught.value.hint


def replace_file(path, content):
    other = path.with_name("other")
    other.write_bytes(content)
    os.replace(other, path)


def test_an_object_that_is_replaced_under_the_load_is_an_error_that_names_the_range(model, range_server):
    path = model.path / model.names[0]
    original = path.read_bytes()

    def choose(call):
        if of_load(call) and call.start >= len(original) // 2 and path.read_bytes() == original:
            replace_file(path, os.urandom(len(original)))

    server = range_server(model.served, faults=choose)
    with load(model, server) as running:
        with pytest.raises(ObjectChanged, match=r"model\.safetensors has been replaced .*: bytes \d+-\d+") as caught:
            running.read()
        assert "start again" in caught.value.hint


def test_a_server_that_ignores_the_condition_does_not_get_another_version_in(model, range_server):
    server = range_server(model.served)
    source = S3Source(URL, env=server.env)
    with loading(model, source) as running:
        running.read()
    server.behaviour.faults = lambda call: range_faults.CHANGED if of_load(call) else None
    entry = source.entries()[0]
    with pytest.raises(ObjectChanged):
        source.read_small(entry, 0, 100)


@pytest.mark.parametrize("fault", [range_faults.STALL, range_faults.SILENT], ids=["stall", "silent"])
def test_closing_does_not_wait_for_a_server_that_hangs(model, range_server, fault):
    server = range_server(model.served, faults=lambda call: fault if of_load(call) else None)
    with load(model, server, QUICK.over(low_speed_window_s=100.0)) as running:
        while server.stats().faults.get(fault.kind, 0) < 8:
            time.sleep(0.01)
        begun = time.monotonic()
        running.fetcher.close()
        assert time.monotonic() - begun < 5
        assert not fetch_threads()


def test_a_late_range_is_overtaken_by_a_second_request(model, range_server):
    server = range_server(model.served, faults=once(range_faults.STALL, which=12))
    with load(model, server, QUICK.over(low_speed_window_s=100.0)) as running:
        stats = running.read()
    assert (stats.hedges, stats.stalls, stats.retries) == (1, 0, 0)
    assert model.size_bytes <= stats.bytes_read <= model.size_bytes + 64 * KIB


def test_a_second_request_that_fails_leaves_the_first_one_in_the_race(model, range_server):
    at = model.starts[0] + 1280 * KIB
    seen = []

    def choose(call):
        if not of_load(call) or not at <= call.start < at + 64 * KIB:
            return None
        seen.append(call)
        return range_faults.STALL if len(seen) == 1 else range_faults.RESET if len(seen) == 2 else None

    server = range_server(model.served, faults=choose)
    with load(model, server, QUICK.over(low_speed_window_s=1.0)) as running:
        stats = running.read()
    assert stats.hedges in {1, 2}
    assert len(seen) == 3


def test_a_second_request_that_stalls_as_well_is_replaced(model, range_server):
    at = model.starts[0] + 1280 * KIB
    seen = []

    def choose(call):
        if not of_load(call) or not at <= call.start < at + 64 * KIB:
            return None
        seen.append(call)
        return range_faults.STALL if len(seen) <= 2 else None

    server = range_server(model.served, faults=choose)
    with load(model, server, QUICK.over(low_speed_window_s=100.0)) as running:
        assert running.read().hedges == 2


def test_few_second_requests_are_sent_however_slow_the_server_becomes(model, range_server):
    server = range_server(model.served)
    switched = threading.Event()

    def choose(call):
        if of_load(call) and call.start > 1 * MIB:
            switched.set()
            return range_faults.STALL
        return None

    server.behaviour.faults = choose
    with load(model, server, QUICK.over(low_speed_window_s=1.2, attempts=1)) as running, pytest.raises(Unreachable):
        running.read()
    assert switched.is_set()
    assert running.fetcher.stats().hedges <= 2 * rivals.MOST


@pytest.mark.parametrize("memory_bytes", [None, 512 * KIB], ids=["full", "windowed"])
def test_no_wrong_byte_comes_out_of_a_storm_of_faults(tmp_path, range_server, memory_bytes):
    model = Model(tmp_path, files=3, tensors=24, tensor_bytes=128 * KIB)
    shares = dict.fromkeys(("stall", "drip", "reset", "short", "drop", "whole", "wrong-range", "500", "503"), 0.02)
    server = range_server(model.served, bandwidth=60 * MIB)
    with load(model, server, QUICK.over(attempts=12), memory_bytes=memory_bytes) as running:
        server.behaviour.faults = by_chance(shares, seed=7)
        stats = running.read()
    assert stats.bytes == model.size_bytes
    assert sum(server.stats().faults.values()) > 10
    assert stats.retries > 5


@pytest.mark.parametrize("hangs", ["connecting", "handshake"])
def test_closing_does_not_wait_for_a_connection_that_does_not_come_about(model, range_server, hangs):
    working = S3Source(URL, env=range_server(model.served).env)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0 if hangs == "connecting" else 64)
        fillers = [socket.socket() for _ in range(4 if hangs == "connecting" else 0)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        scheme = "http" if hangs == "connecting" else "https"
        stuck = S3Source(URL, env={**CREDENTIALS, "AWS_ENDPOINT_URL": f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"})
        running = Load(model, working)
        fetcher = Fetcher(stuck, running.plan, memoryview(running.memory), QUICK)
        fetcher.start()
        fetcher.wait(1, 0.5)
        begun = time.monotonic()
        fetcher.close()
        assert time.monotonic() - begun < 2
        assert not fetch_threads()
        for filler in fillers:
            filler.close()
    running.fetcher.close()


@pytest.mark.parametrize("hedge", [False, True], ids=["alone", "hedged"])
def test_a_checkpoint_is_loaded_over_tls_from_a_server_that_stalls_and_resets(model, range_server, tmp_path, hedge):
    made = certs.make(tmp_path / "certs", ["127.0.0.1"])
    server = range_server(model.served, certificates=made)
    with load(model, server, QUICK.over(hedge=hedge, attempts=8)) as running:
        server.behaviour.faults = by_chance({"stall": 0.05, "reset": 0.05, "short": 0.05, "drip": 0.05}, seed=5)
        assert running.read().bytes == model.size_bytes
