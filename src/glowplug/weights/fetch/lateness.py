"""When a request takes so much longer than its peers that a second one is worth sending.

Judged against the ranges that ended lately, so it fits a store in the same rack as one on another continent. There are two ways to
be late. A *stalled* request runs longer than its peers did and brings next to nothing: a second one costs nobody anything, so there
is no reason to wait. A *slow* one runs far longer than they did, and its end at its present speed is further away than a new
request would take; as a second one takes from the same server and network, there may only be few of them.

Pure: fed with times and byte counts.
"""

from __future__ import annotations

import collections

LEAST_PEERS = 8
LEAST_S = 0.25
"""Below this a second request costs more than it saves."""
STALLED_AFTER = 2.0
SLOW_AFTER = 3.0
"""Times what nearly all peers took; half of it for a request that others wait for."""
STALLED_SHARE = 0.05
"""Of the peers' speed."""
_KEPT = 64
_MEMORY_S = 0.15
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
    def nearly_all_s(self) -> float | None:
        """What nine of ten took at most; None while too few are known."""
        return self._share(0.9)

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

    def is_stalled(self, size_bytes: int, peers: Peers, *, urgent: bool = False) -> bool:
        """Whether it brings next to nothing, and would have ended by now if it were like its peers.

        Args:
            size_bytes: of all of it.
            peers: to compare with.
            urgent: the last ones, and the one that holds up a reader, are waited for less long.
        """
        usual_s = peers.usual_s
        if not usual_s or not self._runs_longer(STALLED_AFTER, peers, urgent=urgent):
            return False
        return self._bytes_per_s < STALLED_SHARE * size_bytes / usual_s

    def is_slow(self, size_bytes: int, peers: Peers, *, urgent: bool = False) -> bool:
        """Whether it runs far longer than its peers did, and a new request would end before it. Arguments as for ``is_stalled``."""
        usual_s = peers.usual_s
        if usual_s is None or not self._runs_longer(SLOW_AFTER, peers, urgent=urgent):
            return False
        return size_bytes - self._received > usual_s * self._bytes_per_s

    def _runs_longer(self, factor: float, peers: Peers, *, urgent: bool) -> bool:
        nearly_all_s = peers.nearly_all_s
        if nearly_all_s is None:
            return False
        return self._seen_s - self._begun_s >= max(LEAST_S, (factor / 2 if urgent else factor) * nearly_all_s)
