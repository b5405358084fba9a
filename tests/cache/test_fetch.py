"""An object as a stream: in order, with bounded memory, and never waited for longer than allowed."""

import os
import threading
import time

import pytest

from glowplug.cache.deadline import Deadline, unbounded
from glowplug.cache.fetch import RANGE_BYTES, READERS, ObjectStream
from glowplug.errors import BadPack, DeadlineExceeded, ObjectNotFound, Unreachable
from glowplug.store.memory import MemoryStore


def read_all(stream, size):
    return b"".join(iter(lambda: stream.read(size), b""))


@pytest.mark.parametrize("length", [0, 1, RANGE_BYTES - 1, RANGE_BYTES, RANGE_BYTES + 1, 3 * RANGE_BYTES + 7])
@pytest.mark.parametrize("size", [-1, 1 << 20, 700_001])
def test_every_byte_arrives_once_and_in_order(store, length, size):
    data = os.urandom(length)
    store.put("pack", data)
    with ObjectStream(store, "pack", length, deadline=unbounded("restore")) as stream:
        assert read_all(stream, size) == data
        assert stream.read() == b""


class Watching(MemoryStore):
    """Delivers late ranges first, and counts how many are asked for at once."""

    def __init__(self):
        super().__init__()
        self.lock, self.now, self.most, self.starts = threading.Lock(), 0, 0, []

    def read_into(self, key, begin, buffer, *, if_match=None):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.starts.append(begin)
        time.sleep(0.02 if (begin // RANGE_BYTES) % READERS == 0 else 0.001)
        super().read_into(key, begin, buffer, if_match=if_match)
        with self.lock:
            self.now -= 1


def test_ranges_are_read_ahead_but_only_so_far(tmp_path):
    del tmp_path
    store, data = Watching(), os.urandom(12 * RANGE_BYTES)
    store.put("pack", data)
    with ObjectStream(store, "pack", len(data), deadline=unbounded("restore")) as stream:
        first = bytes(stream.read(10))
        time.sleep(0.1)
        assert len(store.starts) <= READERS + 1  # nobody reads on while nobody takes
        assert first + read_all(stream, -1) == data
    assert 1 < store.most <= READERS
    assert sorted(store.starts) == list(range(0, len(data), RANGE_BYTES))


def test_only_as_many_threads_are_started_as_there_are_ranges():
    store = Watching()
    store.put("pack", b"small")
    before = threading.active_count()
    with ObjectStream(store, "pack", 5, deadline=unbounded("restore")) as stream:
        assert stream.read() == b"small"
        assert threading.active_count() - before <= 1


def test_its_threads_end_with_it():
    store = Watching()
    store.put("pack", bytes(10 * RANGE_BYTES))
    with ObjectStream(store, "pack", 10 * RANGE_BYTES, deadline=unbounded("restore")) as stream:
        stream.read()
    for _ in range(200):
        if not [thread for thread in threading.enumerate() if thread.name == "glowplug-fetch"]:
            return
        time.sleep(0.01)
    raise AssertionError("threads are left")


def test_a_shorter_object_is_its_writers_fault(store):
    store.put("pack", bytes(100))
    too_short = pytest.raises(BadPack, match="it has 100 bytes, its manifest says 101")
    with ObjectStream(store, "pack", 101, deadline=unbounded("restore")) as stream, too_short:
        stream.read()


def test_a_longer_object_is_refused_before_a_byte_of_it_is_given(any_store):
    any_store.put("pack", b"0123456789")
    too_long = pytest.raises(BadPack, match="it has 10 bytes, its manifest says 4")
    with ObjectStream(any_store, "pack", 4, deadline=unbounded("restore")) as stream, too_long:
        stream.read()


def test_an_object_that_is_not_there_says_so(store):
    with ObjectStream(store, "pack", 4, deadline=unbounded("restore")) as stream, pytest.raises(ObjectNotFound):
        stream.read()


def test_a_connection_that_breaks_is_the_stores_fault():
    class Broken(MemoryStore):
        def read_into(self, key, begin, buffer, *, if_match=None):
            if begin:
                raise Unreachable("connection reset", object=key)
            super().read_into(key, begin, buffer, if_match=if_match)

    store = Broken()
    store.put("pack", bytes(3 * RANGE_BYTES))
    with ObjectStream(store, "pack", 3 * RANGE_BYTES, deadline=unbounded("restore")) as stream:
        assert stream.read() == bytes(RANGE_BYTES)
        with pytest.raises(Unreachable, match="connection reset"):
            stream.read()


def test_a_time_out_of_the_store_is_not_taken_for_our_own_waiting():
    class TimingOut(MemoryStore):
        def read_into(self, *_, **__):
            raise TimeoutError("the store's own")

    store = TimingOut()
    store.put("pack", b"data")
    with (
        ObjectStream(store, "pack", 4, deadline=unbounded("restore")) as stream,
        pytest.raises(TimeoutError, match="the store's own"),
    ):
        stream.read()


def test_a_store_that_hangs_is_left_at_the_deadline_and_does_not_keep_the_process():
    import subprocess
    import sys

    code = """
import threading, time
from glowplug.cache.deadline import Deadline
from glowplug.cache.fetch import ObjectStream
from glowplug.errors import DeadlineExceeded
from glowplug.store.memory import MemoryStore
class Hanging(MemoryStore):
    def read_into(self, *_, **__):
        threading.Event().wait()
store = Hanging()
store.put("pack", b"data")
try:
    with ObjectStream(store, "pack", 4, deadline=Deadline(0.3, step="restore")) as stream:
        stream.read()
except DeadlineExceeded:
    print("left")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "left\n"


def test_waiting_ends_when_it_is_called_off_elsewhere(store):
    class Hanging(MemoryStore):
        def read_into(self, *_, **__):
            time.sleep(2)

    hanging, deadline = Hanging(), Deadline(60, step="restore")
    threading.Timer(0.1, deadline.cancel, ["the engine starts"]).start()
    begun = time.monotonic()
    with ObjectStream(hanging, "pack", 4, deadline=deadline) as stream, pytest.raises(DeadlineExceeded, match="the engine starts"):
        stream.read()
    assert time.monotonic() - begun < 1.5
    assert list(store.list("")) == []
