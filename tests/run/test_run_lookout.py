"""What a start that found nothing is told to do: compile, look again, or start cold. On a store in memory, with short leases."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from glowplug.cache import layout
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import canonical_json
from glowplug.cache.lease import Holder, Lease, State, peek, take
from glowplug.cache.repository import Repository
from glowplug.errors import PreconditionFailed, Unreachable
from glowplug.run.flight import Flight, Lookout
from glowplug.store.memory import MemoryStore
from glowplug.timeline.report import PublishReport

ENVELOPE = hashlib.sha256(b"envelope").hexdigest()
LATEST = layout.latest_key(ENVELOPE)
TTL_S = 0.6


def lookout(store, *, writer=True, waits=None, stop=None):
    return Lookout(
        Repository(store),
        ENVELOPE,
        Holder(host="me", pid=1, ttl_s=TTL_S) if writer else None,
        dead="",
        limit="--wait 9s",
        stop=stop or threading.Event(),
        on_wait=(waits if waits is not None else []).append,
    )


def wait(seconds=30.0):
    return Deadline(seconds, step="wait")


def held(store, **changes):
    """A lease that somebody else keeps."""
    lease = take(store, ENVELOPE, Holder(**{"host": "other", "pid": 7, "ttl_s": TTL_S} | changes), over=peek(store, ENVELOPE))
    lease.keep(at_most_s=60)
    return lease


def publish(store, name=b"generation"):
    store.put(LATEST, canonical_json({"generation": hashlib.sha256(name).hexdigest()}))


def later(step, after_s=0.1):
    threading.Timer(after_s, step).start()


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    """Looks ten times as often as a start does, and waits less for another writer."""
    monkeypatch.setattr("glowplug.run.flight._PAUSES_S", (0.05, 0.1))
    monkeypatch.setattr("glowplug.run.flight._NEXT_WRITER_S", 1.0)


@pytest.fixture
def store():
    return MemoryStore()


def test_where_nobody_compiles_a_writer_does_and_a_reader_goes_cold(store):
    assert lookout(store, writer=False).turn(None, wait()) == ""
    assert isinstance(lookout(store).turn(None, wait()), Lease)


def test_what_appears_is_looked_at_and_whom_it_waited_for_is_said_once(store):
    lease, waits = held(store), []
    later(lambda: publish(store), 0.3)
    pointer = lookout(store, waits=waits).turn(None, wait())
    assert pointer.generation == hashlib.sha256(b"generation").hexdigest()
    assert waits == ["other (pid 7)"]
    lease.finish(State.PUBLISHED)


def test_what_is_of_no_use_is_not_looked_at_again(store):
    publish(store)
    known = Repository(store).latest(ENVELOPE)
    assert isinstance(lookout(store).turn(known, wait()), Lease)
    publish(store, b"another")
    assert lookout(store).turn(known, wait()) == Repository(store).latest(ENVELOPE)


def test_a_pointer_that_points_at_nothing_is_as_none(store):
    store.put(LATEST, b"\xff")
    assert isinstance(lookout(store).turn(None, wait()), Lease)


def test_a_reader_waits_for_the_next_writer_if_one_gives_up(store):
    first = held(store)
    later(lambda: first.finish(State.ABANDONED), 0.2)
    later(lambda: held(store), 0.5)
    later(lambda: publish(store), 0.8)
    assert lookout(store, writer=False).turn(None, wait()) == Repository(store).latest(ENVELOPE)


@pytest.mark.parametrize("end", ["silent", State.ABANDONED])
def test_a_reader_whose_writer_is_gone_goes_cold_where_no_other_takes_over(store, end):
    first = held(store)
    later(lambda: setattr(first, "lost", True) if end == "silent" else first.finish(end))
    assert lookout(store, writer=False).turn(None, wait()) == "other (pid 7) compiles the same no longer"


@pytest.mark.parametrize("writer", [True, False])
def test_whoever_waited_for_one_that_failed_goes_cold_at_once(store, writer):
    first = held(store)
    later(lambda: first.finish(State.FAILED))
    begun = time.monotonic()
    assert "published nothing" in lookout(store, writer=writer).turn(None, wait())
    assert time.monotonic() - begun < 4


def test_the_wait_ends_with_its_deadline_or_when_it_is_told_to(store):
    lease, stop = held(store), threading.Event()
    begun = time.monotonic()
    reason = lookout(store).turn(None, wait(0.3))
    assert reason == "other (pid 7) compiles the same, and is not waited for any longer (--wait 9s)"
    later(stop.set)
    assert lookout(store, stop=stop).turn(None, wait()) == ""
    assert time.monotonic() - begun < 4
    lease.finish(State.PUBLISHED)


def test_a_store_that_never_lets_a_lease_be_taken_is_asked_now_and_then_and_left_at_the_deadline():
    class Hopeless(MemoryStore):
        asked = 0

        def put_if_absent(self, key, _):
            self.asked += 1
            raise PreconditionFailed("somebody else was quicker", object=key)

    store = Hopeless()
    assert "another start compiles the same" in lookout(store).turn(None, wait(0.12))
    assert store.asked <= 4


class Failing(MemoryStore):
    fail = 0

    def head(self, key):
        if self.fail:
            self.fail -= 1
            raise Unreachable("connection reset", object=key)
        return super().head(key)


def test_a_look_that_fails_once_or_twice_does_not_end_the_wait():
    store = Failing()
    held(store)
    later(lambda: setattr(store, "fail", 2))
    later(lambda: publish(store), 0.6)
    assert lookout(store).turn(None, wait()) == Repository(store).latest(ENVELOPE)


def test_a_store_that_no_longer_answers_ends_the_wait():
    store = Failing()
    lease = held(store)
    later(lambda: setattr(store, "fail", 1000))
    assert lookout(store).turn(None, wait()) == "the store no longer tells what other (pid 7) does: connection reset"
    store.fail = 0
    lease.finish(State.PUBLISHED)


def test_a_store_that_does_not_answer_the_first_time_means_no_single_flight():
    store = Failing()
    store.fail = 1
    with pytest.raises(Unreachable):
        lookout(store).turn(None, wait())


@pytest.mark.parametrize(
    ("published", "exit_code", "state"),
    [
        ("published", None, State.PUBLISHED),
        ("exists", None, State.PUBLISHED),
        ("nothing new", None, State.PUBLISHED),
        ("failed", None, State.FAILED),
        ("skipped", None, State.FAILED),  # nothing was compiled, no key
        ("cancelled", None, State.ABANDONED),
        ("skipped", 3, State.FAILED),
        ("skipped", 137, State.FAILED),  # out of memory
        ("skipped", 143, State.ABANDONED),
        ("skipped", 130, State.ABANDONED),
        ("skipped", 0, State.ABANDONED),  # a server that was told to end before it was ready
    ],
)
def test_how_a_flight_ended_is_told_once(store, published, exit_code, state):
    flight = Flight(take(store, ENVELOPE, Holder(), over=None))
    flight.finish(PublishReport(published), exit_code=exit_code)
    flight.abandon()
    assert peek(store, ENVELOPE).holder.state is state
