"""The envelopes in a store that come nearest to one that is not there.

Bounded in everything, since it runs beside a starting engine too: at most 200 envelopes are read, those whose pointer moved last,
each up to 256 KiB and 5000 values, by eight requests at a time, until the deadline. Nobody signs an envelope, so one that is too
large, damaged or of another digest is passed over, and nothing but an explanation hangs on it.
"""

from __future__ import annotations

import heapq
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.envelope import Envelope
from glowplug.cache.explain.causes import Cause, causes, distance, is_near
from glowplug.errors import DeadlineExceeded, GlowplugError
from glowplug.threads import begin_some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.explain.known import Known
    from glowplug.store.base import ObjectInfo, Store

MOST_ENVELOPES = 200
MOST_BYTES = 256 * 1024  # real ones have 5 KiB
_MOST_VALUES = 5000
_READERS = 8
_KEY = re.compile(rf"{layout.ROOT}([0-9a-f]{{64}})/(envelope\.json|latest)")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An envelope in the store, and how it differs from the one asked for."""

    digest: str
    """Of the envelope."""
    published_s: float
    """When its newest generation was published, by the store's clock, in seconds since the epoch."""
    causes: tuple[Cause, ...]
    """The likeliest accident first."""

    @property
    def distance(self) -> float:
        """How far away it is; see ``causes.distance``."""
        return distance(self.causes)

    @property
    def is_near(self) -> bool:
        """Whether it is of what is meant to be the same deployment."""
        return is_near(self.causes)


def neighbours(
    store: Store, envelope: Envelope, *, deadline: Deadline, known: Mapping[str, Known] | None = None, limit: int = 3
) -> list[Neighbour]:
    """The published envelopes that are nearest, nearest first. An equal one is none of them.

    Blocks until the deadline, plus the time of one page of a listing and of one comparison. Memory: 200 envelopes.

    Args:
        store: where they are.
        envelope: the one asked for.
        deadline: when to compare what has come so far.
        known: what the engine's adapter knows, by path.
        limit: how many are wanted.

    Raises:
        RemoteError: the store can't be listed.
        LocalError: no thread can be started.
    """
    found: list[Neighbour] = []
    for digest, published_s, theirs in _read(store, _newest(store, envelope.digest, deadline), deadline):
        if found and deadline.remaining_s == 0:
            break
        found.append(Neighbour(digest, published_s, tuple(causes(envelope, theirs, known))))
    return heapq.nsmallest(limit, found, key=lambda neighbour: (neighbour.distance, -neighbour.published_s, neighbour.digest))


def _newest(store: Store, but: str, deadline: Deadline) -> list[tuple[float, ObjectInfo]]:
    """The envelopes' objects, with the time of their pointer, newest first."""
    documents: dict[str, ObjectInfo] = {}
    published: dict[str, float] = {}
    try:
        for info in _until(store.list(layout.ROOT), deadline):
            match = _KEY.fullmatch(info.key)
            if match is None or match[1] == but:
                continue
            if match[2] == "latest":
                published[match[1]] = info.modified_s
            elif info.size_bytes <= MOST_BYTES:
                documents[match[1]] = info
    except DeadlineExceeded:
        pass  # what was listed so far will do
    known = [(published[digest], info) for digest, info in documents.items() if digest in published]
    return heapq.nlargest(MOST_ENVELOPES, known, key=lambda each: each[0])


def _until(listing: Iterator[ObjectInfo], deadline: Deadline) -> Iterator[ObjectInfo]:
    for info in listing:
        deadline.check()
        yield info


def _read(store: Store, wanted: list[tuple[float, ObjectInfo]], deadline: Deadline) -> list[tuple[str, float, Envelope]]:
    """What could be read of them until the deadline. A reader that hangs is left behind."""
    waiting = iter(wanted)
    lock, found = threading.Lock(), list[tuple[str, float, Envelope]]()

    def read() -> None:
        while deadline.remaining_s != 0:
            with lock:
                published_s, info = next(waiting, (0.0, None))
            if info is None:
                return
            envelope = _envelope(store, info)
            if envelope is not None:
                with lock:
                    found.append((envelope.digest, published_s, envelope))

    if not wanted:
        return []
    readers = [threading.Thread(target=read, name="glowplug-explain", daemon=True) for _ in range(min(_READERS, len(wanted)))]
    for reader in begin_some(readers):
        reader.join(deadline.remaining_s)
    with lock:
        return list(found)


def _envelope(store: Store, info: ObjectInfo) -> Envelope | None:
    digest = info.key[len(layout.ROOT) :].partition("/")[0]
    document = bytearray(info.size_bytes)
    try:
        store.read_into(info.key, 0, memoryview(document))
        envelope = Envelope.parse(bytes(document))
    except GlowplugError:
        return None
    return envelope if envelope.digest == digest and len(envelope.flat()) <= _MOST_VALUES else None
