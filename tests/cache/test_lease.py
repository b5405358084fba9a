"""The lease of single flight: taken by one, renewed, lost, stolen from the dead, given back; on every kind of store."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import uuid

import pytest
from cache_samples import DIGEST

from glowplug.cache import layout
from glowplug.cache.lease import Holder, State, Watch, peek, take
from glowplug.errors import ConditionalWritesUnsupported, Unreachable
from glowplug.store import open_store
from glowplug.store.memory import MemoryStore

KEY = layout.lease_key(DIGEST)
TTL_S = 0.6


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def any_store(request):
    """Memory, a folder, and a real S3 server."""
    if request.param == "s3":
        server = request.getfixturevalue("seaweedfs")
        return open_store(f"s3://{server.bucket}/lease-{uuid.uuid4().hex}", env=server.env)
    return request.getfixturevalue("store" if request.param == "memory" else "local_store")


def holder(**changes):
    return dataclasses.replace(Holder(ttl_s=TTL_S), **changes)


def watch_until(watch, condition, timeout_s=20.0):
    end = time.monotonic() + timeout_s
    while not condition(watch):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
        watch.look()
    return watch


def silenced(store):
    """A watch that has seen the holder of a lease die."""
    watch = Watch(store, DIGEST)
    watch.look()
    return watch_until(watch, lambda watch: watch.free)


# --- taken


def test_a_lease_is_taken_once_and_tells_who_holds_it(any_store):
    assert peek(any_store, DIGEST) is None
    first = holder(node="a" * 16, host="pod-1", pid=7)
    assert take(any_store, DIGEST, first, over=None) is not None
    assert take(any_store, DIGEST, holder(), over=None) is None
    seen = peek(any_store, DIGEST)
    assert (seen.holder, seen.held, seen.holder.name) == (first, True, "pod-1 (pid 7)")


def race(store, over):
    """Eight that try at once; the leases they got."""
    barrier, got = threading.Barrier(8), []

    def try_it():
        me = holder()
        barrier.wait()
        got.append(take(store, DIGEST, me, over=over))

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [lease for lease in got if lease is not None]


def test_of_eight_who_take_it_at_once_one_gets_it(any_store):
    [lease] = race(any_store, None)
    assert peek(any_store, DIGEST).holder.id == lease.holder.id


def test_of_eight_who_steal_it_from_the_dead_one_gets_it(any_store):
    take(any_store, DIGEST, holder(), over=None)
    watch = silenced(any_store)
    [lease] = race(any_store, watch.seen)
    assert peek(any_store, DIGEST).holder.id == lease.holder.id


def test_a_write_whose_answer_was_lost_is_recognised_as_our_own():
    class Deaf(MemoryStore):
        """Writes, and a retry finds the object there."""

        def put_if_absent(self, key, data):
            super().put_if_absent(key, data)
            return super().put_if_absent(key, data)

        def put_if_match(self, key, data, etag):
            super().put_if_match(key, data, etag)
            return super().put_if_match(key, data, etag)

    store = Deaf()
    lease = take(store, DIGEST, holder(), over=None)
    lease.renew()
    lease.renew()
    assert not lease.lost
    lease.finish(State.PUBLISHED)
    assert peek(store, DIGEST).holder.state is State.PUBLISHED


# --- renewed, lost, stolen


def test_a_lease_that_is_kept_is_never_free(any_store):
    lease = take(any_store, DIGEST, holder(), over=None)
    assert lease.keep(at_most_s=60)
    watch = Watch(any_store, DIGEST)
    end = time.monotonic() + 3 * TTL_S
    while time.monotonic() < end:
        watch.look()
        assert not watch.free
        time.sleep(0.02)
    assert watch.seen.holder.sequence >= 3
    lease.finish(State.PUBLISHED)


def test_a_holder_that_was_silent_for_too_long_notices_and_touches_the_next_ones_lease_no_more(any_store):
    lost = take(any_store, DIGEST, holder(), over=None)
    watch = silenced(any_store)
    assert watch.silent_s >= TTL_S
    winner = take(any_store, DIGEST, holder(), over=watch.seen)
    lost.renew()
    assert lost.lost
    lost.finish(State.PUBLISHED)
    seen = peek(any_store, DIGEST)
    assert (seen.holder.id, seen.held) == (winner.holder.id, True)
    winner.renew()
    assert not winner.lost


def test_the_heartbeat_ends_when_the_lease_is_lost(store):
    lost = take(store, DIGEST, holder(), over=None)
    take(store, DIGEST, holder(), over=peek(store, DIGEST))
    lost.keep(at_most_s=60)
    lost._thread.join(10)
    assert not lost._thread.is_alive()
    assert lost.lost


def test_a_heartbeat_that_does_not_get_through_goes_on(store):
    class Flaky(MemoryStore):
        left = 0

        def put_if_match(self, key, data, etag):
            self.left -= 1
            if self.left in {0, 1}:
                raise Unreachable("connection reset", object=key)
            return super().put_if_match(key, data, etag)

    store = Flaky()
    lease = take(store, DIGEST, holder(), over=None)
    store.left = 3
    lease.keep(at_most_s=60)
    watch = Watch(store, DIGEST)
    watch.look()
    watch_until(watch, lambda watch: watch.seen.holder.sequence >= 3)
    lease.finish(State.PUBLISHED)
    assert peek(store, DIGEST).holder.state is State.PUBLISHED


def test_a_holder_on_this_node_that_is_known_to_be_dead_is_not_watched(any_store):
    dead = take(any_store, DIGEST, holder(ttl_s=60.0), over=None).holder
    newcomer, restarted = Watch(any_store, DIGEST), Watch(any_store, DIGEST, dead=dead.id)
    newcomer.look()
    restarted.look()
    assert (newcomer.free, restarted.free) == (False, True)


def test_no_id_at_all_is_no_dead_holders(store):
    store.put(KEY, b"nobody")
    watch = Watch(store, DIGEST, dead="")
    watch.look()
    assert not watch.free


class Skewed(MemoryStore):
    """Its clock, and everybody's, is wrong by any amount, and jumps."""

    off_s = 0.0

    def head(self, key):
        self.off_s = -self.off_s * 2 or 1e9
        return dataclasses.replace(super().head(key), modified_s=time.time() + self.off_s)


def test_clocks_that_are_wrong_and_jump_neither_free_a_living_lease_nor_keep_a_dead_one():
    store = Skewed()
    lease = take(store, DIGEST, holder(started_at="1970-01-01T00:00:00+00:00"), over=None)
    lease.keep(at_most_s=60)
    watch = Watch(store, DIGEST)
    end = time.monotonic() + 2 * TTL_S
    while time.monotonic() < end:
        watch.look()
        assert not watch.free
        time.sleep(0.02)
    lease.lost = True  # it is heard no more
    begun = time.monotonic()
    watch_until(watch, lambda watch: watch.free)
    assert TTL_S * 0.5 < time.monotonic() - begun < TTL_S * 4


# --- given back


@pytest.mark.parametrize("state", [State.PUBLISHED, State.FAILED, State.ABANDONED])
def test_a_lease_that_was_given_back_is_free_at_once_says_how_it_ended_and_can_be_taken_again(any_store, state):
    lease = take(any_store, DIGEST, holder(), over=None)
    lease.keep(at_most_s=60)
    lease.finish(state)
    lease.finish(State.HELD)  # the first call counts
    watch = Watch(any_store, DIGEST)
    seen = watch.look()
    assert (watch.free, seen.held, seen.holder.state, seen.holder.id) == (True, False, state, lease.holder.id)
    assert take(any_store, DIGEST, holder(), over=seen) is not None


def test_a_lease_is_given_back_without_a_heartbeat_as_well(store):
    lease = take(store, DIGEST, holder(), over=None)
    lease.finish(State.FAILED)
    assert peek(store, DIGEST).holder.state is State.FAILED


def test_a_holder_that_never_comes_to_an_end_gives_it_back_as_failed(store):
    lease = take(store, DIGEST, holder(), over=None)
    lease.keep(at_most_s=0.1)
    watch = Watch(store, DIGEST)
    watch.look()
    watch_until(watch, lambda watch: not watch.seen.held)
    assert watch.seen.holder.state is State.FAILED


def test_giving_back_waits_for_no_store_that_hangs():
    class Stuck(MemoryStore):
        let_go = threading.Event()

        def put_if_match(self, key, data, etag):
            self.let_go.wait(20)
            return super().put_if_match(key, data, etag)

    store = Stuck()
    lease = take(store, DIGEST, holder(), over=None)
    lease.keep(at_most_s=60)
    begun = time.monotonic()
    lease.finish(State.PUBLISHED)
    assert time.monotonic() - begun < 5
    store.let_go.set()
    watch = Watch(store, DIGEST)
    watch.look()
    watch_until(watch, lambda watch: not watch.seen.held)


# --- what anybody may have written there


HOSTILE = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[" * 4000,
    b"{}",
    json.dumps({"id": 1}).encode(),
    json.dumps(json.loads(Holder().document) | {"state": "eternal"}).encode(),
    json.dumps(json.loads(Holder().document) | {"pid": "x"}).encode(),
    json.dumps(json.loads(Holder().document) | {"ttl_s": []}).encode(),
    json.dumps(json.loads(Holder().document) | {"pid": float("inf")}).encode(),
    Holder().document + b" " * 5000,
    b"x" * 5_000_000,
]


@pytest.mark.parametrize("document", HOSTILE)
def test_what_is_no_lease_is_held_by_nobody_in_particular_and_expires(store, document, monkeypatch):
    monkeypatch.setattr("glowplug.cache.lease._UNKNOWN", holder(id="", host="", pid=0, ttl_s=0.1))
    store.put(KEY, document)
    watch = Watch(store, DIGEST)
    watch.look()
    assert not watch.free
    assert watch.seen.holder.name == "somebody (pid 0)"
    watch_until(watch, lambda watch: watch.free)
    assert take(store, DIGEST, holder(), over=watch.seen) is not None


@pytest.mark.parametrize(
    ("claimed", "believed"), [(1e300, 60.0), (-1, 0.5), (0, 0.5), (float("nan"), 0.5), (float("inf"), 60.0), (20, 20.0)]
)
def test_nobody_is_more_or_less_patient_than_is_sensible_whatever_a_document_says(store, claimed, believed):
    store.put(KEY, json.dumps(json.loads(Holder().document) | {"ttl_s": claimed}).encode())
    assert peek(store, DIGEST).holder.ttl_s == believed


def test_a_hostile_name_is_printed_as_one_short_line(store):
    store.put(KEY, json.dumps(json.loads(Holder().document) | {"host": "a\n\x1b[31m" + "b" * 1000, "pid": 10**1000}).encode())
    name = peek(store, DIGEST).holder.name
    assert name.isprintable()
    assert len(name) < 130


def test_a_look_at_a_lease_that_has_not_changed_reads_it_no_second_time(store):
    reads = []

    class Counting(MemoryStore):
        def read_into(self, key, start, buffer, *, if_match=None):
            reads.append(key)
            super().read_into(key, start, buffer, if_match=if_match)

    store = Counting()
    lease = take(store, DIGEST, holder(), over=None)
    watch = Watch(store, DIGEST)
    for _ in range(5):
        watch.look()
    assert reads == [KEY]
    lease.renew()
    watch.look()
    assert reads == [KEY, KEY]


def test_a_lease_that_is_replaced_while_it_is_read_counts_as_one_that_is_held(store):
    class Racing(MemoryStore):
        def read_into(self, key, start, buffer, *, if_match=None):
            self.put(key, holder(state=State.FAILED).document)
            super().read_into(key, start, buffer, if_match=if_match)

    store = Racing()
    take(store, DIGEST, holder(), over=None)
    assert peek(store, DIGEST).held


def test_a_store_without_conditional_writes_says_so(store, monkeypatch):
    def unsupported(*_):
        raise ConditionalWritesUnsupported("not here", object="x")

    monkeypatch.setattr(store, "put_if_absent", unsupported)
    with pytest.raises(ConditionalWritesUnsupported):
        take(store, DIGEST, holder(), over=None)
