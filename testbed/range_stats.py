"""What the range server counts: requests, bytes of bodies, connections, and how many requests ran at once."""

from __future__ import annotations

import collections
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the start, or since they were last set to zero.

    Attributes:
        requests: of every kind.
        connections: accepted.
        body_bytes: of objects, handed to the kernel; without heads and listings. Never less than any client has received.
        most_at_once: requests for objects that ran at the same time. One has ended before its last byte is sent, so a client that
            sends its next request after it has never two.
        statuses: answers by status.
        faults: done on purpose, by kind.
        keys: requests and bytes of bodies, by ``bucket/key``.
    """

    requests: int = 0
    connections: int = 0
    body_bytes: int = 0
    most_at_once: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For ``/_stats``."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Stats:
        """What ``as_json`` gave."""
        keys = {key: (int(requests), int(size)) for key, (requests, size) in document.pop("keys").items()}
        return cls(**document, keys=keys)


class Counters:
    """Counts from any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_once = 0
        self.reset()

    def reset(self) -> None:
        """All counts are zero again; what runs still counts as running."""
        with self._lock:
            self._requests = self._connections = self._body_bytes = 0
            self._most_at_once = self._at_once
            self._statuses: collections.Counter[str] = collections.Counter()
            self._faults: collections.Counter[str] = collections.Counter()
            self._key_requests: collections.Counter[str] = collections.Counter()
            self._key_bytes: collections.Counter[str] = collections.Counter()
            self._object_requests = 0

    def connection(self) -> None:
        """A connection was accepted."""
        with self._lock:
            self._connections += 1

    def request(self) -> None:
        """A request was read."""
        with self._lock:
            self._requests += 1

    def numbers(self, name: str) -> tuple[int, int]:
        """Of a request for an object: its number among all, and among those for this object; both from 1."""
        with self._lock:
            self._object_requests += 1
            self._key_requests[name] += 1
            return self._object_requests, self._key_requests[name]

    def begun(self) -> None:
        """A request for an object is being answered."""
        with self._lock:
            self._at_once += 1
            self._most_at_once = max(self._most_at_once, self._at_once)

    def ended(self) -> None:
        """Its answer is about to be complete, or never will be."""
        with self._lock:
            self._at_once -= 1

    def answered(self, status: int) -> None:
        """An answer begins."""
        with self._lock:
            self._statuses[str(status)] += 1

    def fault(self, kind: str) -> None:
        """Something is done wrong."""
        with self._lock:
            self._faults[kind] += 1

    def sent(self, name: str, size_bytes: int) -> None:
        """Bytes of an object's body go to the kernel; negative for those that did not."""
        with self._lock:
            self._body_bytes += size_bytes
            self._key_bytes[name] += size_bytes

    def stats(self) -> Stats:
        """A copy of the counts."""
        with self._lock:
            return Stats(
                self._requests,
                self._connections,
                self._body_bytes,
                self._most_at_once,
                dict(self._statuses),
                dict(self._faults),
                {name: (count, self._key_bytes[name]) for name, count in self._key_requests.items()},
            )
