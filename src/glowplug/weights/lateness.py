"""When a request takes so much longer than its peers that a second one is worth sending.

Judged against the ranges that ended lately, so it fits a store in the same rack as one on another continent. A request is late if
it runs longer than nearly all of them did, *and* at its present speed its end is further away than a new request would take: one
that is about to end is left alone.

Pure: fed with times and byte counts.
"""

from __future__ import annotations

import collections

LEAST_PEERS = 8
LEAST_S = 0.25
"""Below this a second request costs more than it saves."""
FACTOR = 2.0
_KEPT = 64
_MEMORY_S = 0.3
"""How far back a request's present speed looks."""


class Peers:
    """Durations of the ranges that ended lately. For one thread."""

    def __init__(self) -> None:
        self._durations: collections.deque[float] = collections.deque(maxlen=_KEPT)

    def ended(self, seconds: float) -> None:
        """A range of the usual size has ended."""
        self._durations.append(seconds)

    @property
    def usual_s(self) -> float | None:
        """What half of them took at most; None while too few are known."""
        return self._share(0.5)

    @property
    def late_after_s(self) -> float | None:
        """From when on a range is late; None while too few are known."""
        nearly_all = self._share(0.9)
        return None if nearly_all is None else max(LEAST_S, FACTOR * nearly_all)

    def _share(self, share: float) -> float | None:
        if len(self._durations) < LEAST_PEERS:
            return None
        return sorted(self._durations)[int(share * (len(self._durations) - 1))]


class Pace:
    """Present speed of one request. For one thread.

    Args:
        now_s: when it began.
    """

    def __init__(self, now_s: float) -> None:
        self._begun_s = self._seen_s = now_s
        self._received = 0
        self._bytes_per_s = 0.0

    def seen(self, now_s: float, received_bytes: int) -> None:
        """It has received so much."""
        passed_s = now_s - self._seen_s
        if passed_s <= 0:
            return
        weight = min(1.0, passed_s / _MEMORY_S)
        self._bytes_per_s += weight * ((received_bytes - self._received) / passed_s - self._bytes_per_s)
        self._seen_s, self._received = now_s, received_bytes

    def is_late(self, size_bytes: int, peers: Peers) -> bool:
        """Whether a second request for its ``size_bytes`` is worth sending."""
        late_after_s, usual_s = peers.late_after_s, peers.usual_s
        if late_after_s is None or usual_s is None or self._seen_s - self._begun_s < late_after_s:
            return False
        return size_bytes - self._received > usual_s * self._bytes_per_s
