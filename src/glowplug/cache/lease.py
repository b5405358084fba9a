"""The lease of single flight: of all who start with one envelope and find nothing published, one compiles and the others wait.

The lease is one object beside ``latest``. It is taken by a conditional put, renewed by compare-and-swap every third of its time to
live, and given back by a last compare-and-swap that says how the flight ended. It is never deleted: a delete has no condition, and
could hit the next holder's. A document that is not ``held`` is free for whoever swaps it first, and so is one that has expired.

**Expiry is silence.** No two clocks are compared. Whoever waits watches the object's ETag, and a holder is dead when it has not
changed for the time to live, by the watcher's own monotonic clock. So clocks may be wrong by any amount everywhere; the price is
that a newcomer to a dead lease watches it for that time once. A holder that was killed on this very node needs no watching: its
live folder is ours now, and it held the lock on that until it died (``dead``).

**How it ends for those who wait.** ``published``: take what was published. ``failed``: the holder compiled and had nothing to give,
or its engine crashed; everybody goes cold at once, for the next in line would hardly fare better, and a convoy would take turns to
find that out. ``abandoned`` (its pod was stopped) and silence (it was killed): the first to swap compiles, the others go on waiting
for that one, each within its own bound.

A holder that loses its lease, because it was silent for too long, goes on compiling and touches the object no more. Both may
publish; the pointer's own compare-and-swap decides. The lease saves work and guards nothing: whatever an attacker writes into it,
a start waits for at most ``--wait``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import threading
import time
import uuid
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.errors import GlowplugError, ObjectChanged, ObjectNotFound, PreconditionFailed, Unreachable
from glowplug.printable import printable
from glowplug.threads import begin

if TYPE_CHECKING:
    from glowplug.store.base import Store

SCHEMA = "glowplug.dev/lease/v1"
TTL_S = 20.0
"""Silence after which a holder counts as dead."""
_SHORTEST_S, _LONGEST_S = 0.5, 60.0  # nobody's document makes a watcher more or less patient than this
_RENEWALS = 3  # in one time to live: two may fail
_MAX_BYTES = 4096
_MAX_TEXT = 100
_LARGEST = 2**31
_FINISH_S = 2.0


class State(StrEnum):
    """What a lease's document says."""

    HELD = "held"
    PUBLISHED = "published"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Holder:
    """A lease's document.

    Attributes:
        id: random; one process's.
        node: the node it runs on, as 16 hex digits.
        host, pid: for people.
        sequence: counts its writes, so that no two have the same content.
        ttl_s: silence after which it counts as dead, between 0.5 and 60 s.
        state: whether it is held, and if not, how it ended.
        started_at: when it was taken, by the holder's clock; for people.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    node: str = ""
    host: str = field(default_factory=lambda: os.uname().nodename)
    pid: int = field(default_factory=os.getpid)
    sequence: int = 0
    ttl_s: float = TTL_S
    state: State = State.HELD
    started_at: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))

    @property
    def document(self) -> bytes:
        """As it is stored."""
        return canonical_json({"schema": SCHEMA, **asdict(self)})

    @property
    def name(self) -> str:
        """For messages: one line of printable text, whatever somebody wrote."""
        return f"{printable(self.host)[:_MAX_TEXT] or 'somebody'} (pid {self.pid})"

    @classmethod
    def parse(cls, data: bytes) -> Holder:
        """Read a document. One that is none is held by nobody in particular, and expires like any other."""
        try:
            tree = json.loads(data)
            texts = {name: str(tree[name])[:_MAX_TEXT] for name in ("id", "node", "host", "started_at")}
            return cls(
                **texts,
                pid=min(max(0, int(tree["pid"])), _LARGEST),
                sequence=min(max(0, int(tree["sequence"])), _LARGEST),
                ttl_s=min(_LONGEST_S, max(_SHORTEST_S, float(tree["ttl_s"]))),  # in this order NaN becomes the shortest
                state=State(tree["state"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # nobody signs it: anything may stand there
            return _UNKNOWN


_UNKNOWN = Holder(id="", host="", pid=0, started_at="")


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it was found."""

    holder: Holder
    etag: str
    """To take it over, if it is still the same."""
    modified_s: float
    """When it was last written, by the store's own clock, in seconds since the epoch."""

    @property
    def held(self) -> bool:
        """Whether it says so itself; its holder may be dead."""
        return self.holder.state is State.HELD


def peek(store: Store, envelope_digest: str, *, known: Seen | None = None) -> Seen | None:
    """The lease of an envelope; None if there has never been one.

    One small request; a second one if it is not the one that is ``known``. Reads at most 4 KiB.

    Raises:
        RemoteError: the store did not answer.
    """
    key = layout.lease_key(envelope_digest)
    try:
        info = store.head(key)
        if known is not None and known.etag == info.etag:
            return known
        data = bytearray(info.size_bytes if info.size_bytes <= _MAX_BYTES else 0)
        with contextlib.suppress(ObjectChanged, Unreachable):  # written meanwhile; the next look reads it
            store.read_into(key, 0, memoryview(data), if_match=info.etag)
    except ObjectNotFound:
        return None
    return Seen(Holder.parse(bytes(data)), info.etag, info.modified_s)


class Watch:
    """One envelope's lease, seen by somebody who waits. For one thread.

    Args:
        store: where it is.
        envelope_digest: whose.
        dead: id of a holder that is known to be dead; empty for none.
    """

    def __init__(self, store: Store, envelope_digest: str, *, dead: str = "") -> None:
        self._store = store
        self._envelope_digest = envelope_digest
        self._dead = dead
        self._since_s = 0.0
        self.seen: Seen | None = None
        self.silent_s = 0.0
        """For how long its holder has not been heard, at least."""

    def look(self) -> Seen | None:
        """Look again. Raises RemoteError."""
        asked_s = time.monotonic()
        found = peek(self._store, self._envelope_digest, known=self.seen)
        if found is None or self.seen is None or found.etag != self.seen.etag:
            self._since_s = time.monotonic()
        self.silent_s = max(0.0, asked_s - self._since_s)
        self.seen = found
        return found

    @property
    def free(self) -> bool:
        """Whether nobody holds it, or only somebody who is dead."""
        seen = self.seen
        return seen is None or not seen.held or self.silent_s >= seen.holder.ttl_s or seen.holder.id == self._dead != ""


def take(store: Store, envelope_digest: str, holder: Holder, *, over: Seen | None) -> Lease | None:
    """Take a lease that is free. Of any number who try at once one gets it; None for the others.

    Args:
        store: where it is.
        envelope_digest: whose.
        holder: who takes it.
        over: the lease as it was found; None where there was none.

    Raises:
        RemoteError: the store did not take it, or knows no conditional writes.
    """
    key = layout.lease_key(envelope_digest)
    try:
        etag = store.put_if_absent(key, holder.document) if over is None else store.put_if_match(key, holder.document, over.etag)
    except PreconditionFailed:
        found = peek(store, envelope_digest)
        if found is None or found.holder.id != holder.id:
            return None
        etag = found.etag  # the answer to our own write was lost, and a retry has met it
    return Lease(store, envelope_digest, holder, etag)


class Lease:
    """A lease that this process holds. Thread-safe.

    Args:
        store: where it is.
        envelope_digest: whose.
        holder: this process.
        etag: of its last write.
    """

    def __init__(self, store: Store, envelope_digest: str, holder: Holder, etag: str) -> None:
        self._store = store
        self._envelope_digest = envelope_digest
        self._etag = etag
        self._ended = threading.Event()
        self._final: State | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.holder = holder
        self.lost = False
        """Somebody else has taken it."""

    def keep(self, *, at_most_s: float) -> bool:
        """Renew it in the background from now on. False where no thread can be had.

        Args:
            at_most_s: after this time it is given back as failed, whatever its holder does.
        """
        thread = threading.Thread(target=self._beat, args=(at_most_s,), name="glowplug-lease", daemon=True)
        if not begin(thread):
            return False
        self._thread = thread
        return True

    def renew(self) -> None:
        """Say that the holder lives. Raises RemoteError."""
        self._write(replace(self.holder, sequence=self.holder.sequence + 1))

    def finish(self, state: State) -> None:
        """Give it back. The first call counts. Blocks for at most 2 s; the store may learn of it later, or never."""
        with self._lock:
            self._final = self._final or state
        self._ended.set()
        if self._thread is None:
            self._give_back(self._final)
        else:
            self._thread.join(_FINISH_S)

    def _beat(self, at_most_s: float) -> None:
        end_s = time.monotonic() + at_most_s
        pause_s = self.holder.ttl_s / _RENEWALS
        while not self._ended.wait(max(0.0, min(pause_s, end_s - time.monotonic()))):
            if self.lost:
                return
            if time.monotonic() >= end_s:
                break
            with contextlib.suppress(GlowplugError):  # the next one may get through; if none does, others take over
                self.renew()
        with self._lock:
            self._final = self._final or State.FAILED
        self._give_back(self._final)

    def _give_back(self, state: State) -> None:
        with contextlib.suppress(GlowplugError):  # it expires
            self._write(replace(self.holder, sequence=self.holder.sequence + 1, state=state))

    def _write(self, holder: Holder) -> None:
        if self.lost:
            return
        key = layout.lease_key(self._envelope_digest)
        for _ in range(2):
            try:
                self._etag = self._store.put_if_match(key, holder.document, self._etag)
            except PreconditionFailed:
                found = peek(self._store, self._envelope_digest)
                if found is None or found.holder.id != holder.id or not found.held:
                    self.lost = found is None or found.holder.id != holder.id
                    return
                self._etag = found.etag  # our own last write, whose answer was lost
            else:
                self.holder = holder
                return
