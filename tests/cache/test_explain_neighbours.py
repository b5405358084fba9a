"""The nearest envelopes of a store: in the right order, in bounded time, and whatever somebody has put there."""

import json
import threading
import time

import pytest

from glowplug.cache import layout
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import SCHEMA, Envelope, canonical_json
from glowplug.cache.explain.neighbours import MOST_BYTES, MOST_ENVELOPES, neighbours
from glowplug.errors import Unreachable
from glowplug.store.memory import MemoryStore

OURS = Envelope({"engine": {"name": "vllm"}, "model": {"reference": "org/llama"}, "arguments": {"a": 1, "b": 1, "c": 1}})


def like(**groups):
    return Envelope({name: {**content, **groups.get(name, {})} for name, content in OURS.components.items()})


def put(store, envelope, *, published=True):
    store.put(layout.envelope_key(envelope.digest), envelope.document)
    if published:
        store.put(layout.latest_key(envelope.digest), b"{}")
    return envelope.digest


def found(store, *, envelope=OURS, seconds=30, limit=3):
    return [each.digest for each in neighbours(store, envelope, deadline=Deadline(seconds, step="explain"), limit=limit)]


def test_the_nearest_come_first_by_weight_and_not_by_number(any_store):
    far = put(any_store, like(model={"reference": "org/other"}))
    near = put(any_store, like(arguments={"a": 2, "b": 2, "c": 2}))
    nearer = put(any_store, like(arguments={"A_HOST": "10.0.0.1", "B_HOST": "10.0.0.2", "POD": "a-0", "A_PORT": 1}))
    assert found(any_store) == [nearer, near, far]
    assert found(any_store, limit=1) == [nearer]


def test_of_equally_near_ones_the_newest_comes_first(store):
    first = put(store, like(arguments={"a": 2}))
    time.sleep(0.002)
    second = put(store, like(arguments={"a": 3}))
    assert found(store) == [second, first]


def test_itself_and_what_was_never_published_are_no_neighbours(store):
    put(store, OURS)
    put(store, like(arguments={"a": 2}), published=False)
    assert found(store) == []
    assert found(MemoryStore()) == []


HOSTILE = {
    "empty": b"",
    "another document": b"{}",
    "deep": b'{"schema": "%s", "components": ' % SCHEMA.encode() + b"[" * 100_000,
    "not a number": b'{"schema": "%s", "components": {"a": NaN}}' % SCHEMA.encode(),
    "half a pair": b'{"schema": "%s", "components": {"a": "\\ud800"}}' % SCHEMA.encode(),
    "large number": b'{"schema": "%s", "components": {"a": %s}}' % (SCHEMA.encode(), b"9" * 10_000),
    "huge": b" " * (MOST_BYTES + 1),
    "moved": OURS.document,
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_envelope_that_cannot_be_used_is_passed_over(store, document):
    good = put(store, like(arguments={"a": 2}))
    store.put(layout.envelope_key("0" * 64), document)
    store.put(layout.latest_key("0" * 64), b"{}")
    store.put("v1/reports/reader/x/latest", b"{}")
    assert found(store) == [good]


def test_an_envelope_with_very_many_components_is_passed_over(store):
    put(store, Envelope({"environment": {f"{number:x}": number for number in range(10_000)}}))
    good = put(store, Envelope({"environment": {f"{number:x}.": number for number in range(4000)}, "words": list(range(20_000))}))
    assert found(store) == [good]


def test_at_most_200_are_read_those_that_were_published_last():
    class Counting(MemoryStore):
        reads = 0

        def read_into(self, *args, **rest):
            Counting.reads += 1
            return super().read_into(*args, **rest)

    store = Counting()
    nearest = put(store, like(arguments={"a": 2}))
    for number in range(MOST_ENVELOPES):
        put(store, like(model={"reference": f"org/{number}"}))
    time.sleep(0.002)
    newest = put(store, like(arguments={"a": 2, "b": 2, "c": 2}))
    assert newest in found(store)
    assert nearest not in found(store)
    assert Counting.reads == 2 * MOST_ENVELOPES


class Slow(MemoryStore):
    """A store whose reads hang until the test has ended."""

    def __init__(self):
        super().__init__()
        self.over = threading.Event()
        self.quick = ""

    def read_into(self, key, start, buffer, *, if_match=None):
        if self.quick not in key:
            self.over.wait(60)
        return super().read_into(key, start, buffer, if_match=if_match)


@pytest.fixture
def slow():
    store = Slow()
    yield store
    store.over.set()


def test_a_store_that_hangs_is_left_at_the_deadline_with_what_has_come(slow):
    slow.quick = put(slow, like(arguments={"a": 2}))
    for number in range(5):
        put(slow, like(arguments={"a": number + 3}))
    begun_s = time.monotonic()
    assert found(slow, seconds=0.3) == [slow.quick]
    assert time.monotonic() - begun_s < 5


def test_a_listing_that_goes_on_for_ever_is_left_at_the_deadline():
    class Endless(MemoryStore):
        def list(self, prefix):
            yield from super().list(prefix)
            while True:
                yield next(iter(super().list(prefix)))

    store = Endless()
    digest = put(store, like(arguments={"a": 2}))
    begun_s = time.monotonic()
    assert found(store, seconds=0.2) in ([digest], [])  # read, if a moment was left
    assert time.monotonic() - begun_s < 5


def test_an_envelope_that_vanishes_is_passed_over_and_a_store_that_cannot_be_listed_is_an_error(store):
    class Gone(MemoryStore):
        def read_into(self, key, *_, **__):
            raise Unreachable("gone", object=key)

        list = store.list

    put(store, like(arguments={"a": 2}))
    assert found(Gone()) == []

    class Closed(MemoryStore):
        def list(self, prefix):
            raise Unreachable("no listing", object=prefix)

    with pytest.raises(Unreachable):
        found(Closed())


def test_what_is_told_holds_no_character_that_steers_a_terminal(store):
    put(store, like(arguments={"\x1b[2J\u202e": "\x07"}))
    [neighbour] = neighbours(store, OURS, deadline=Deadline(30, step="explain"))
    [cause] = neighbour.causes
    from glowplug.cache.explain.text import one_line, two_lines

    assert one_line(cause).isprintable()
    assert all(line.isprintable() for line in two_lines(neighbour.causes))
    assert json.loads(canonical_json(cause.theirs)) == '"\\u0007"'
