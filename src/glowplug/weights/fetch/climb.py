"""How many requests at once are worth while, found by trying.

One connection to an object store brings 50-100 MB/s, a pod's network 1-12 GB/s, and a store behind a slow disk 100 MB/s in all: no
number suits all of them. So the fetch begins with a few requests and climbs while that pays. Each level is measured for a moment;
one that brings clearly more is kept and the next is tried, one that does not is left again. What was found is tried again now and
then, as networks change. A server that asks for less gets less at once, and then slowly what it had before.

Pure: fed with times and byte counts, it opens nothing and waits for nothing.
"""

from __future__ import annotations

STEP = 1.5
GAIN = 1.05
"""A level must bring this much more than the one below it."""
SETTLE_S = 0.15
"""After a change the new connections need a moment; what comes meanwhile tells nothing."""
MEASURE_S = 0.3
HOLD_S = 4.0
"""After a try that did not pay."""
CALM_S = 1.5
"""So long after the server last asked for less, it gets a request more."""
RISE_S = 0.5
"""And another one after each of these, up to what it had complained of."""
_CUT_S = 1.0
"""Answers that ask for less within this are about the same moment."""
_LESS = 0.7


class Climb:
    """For one thread.

    Args:
        lowest: fewest requests at once, unless the server asks for fewer.
        highest: most.
        start: to begin with; kept between the bounds.
    """

    def __init__(self, lowest: int, highest: int, *, start: int = 8) -> None:
        self._lowest = lowest
        self._highest = highest
        self._level = max(lowest, min(highest, start))
        self._below: tuple[int, float] | None = None
        """The level that was left for this one, and what it brought."""
        self._since: tuple[float, int] | None = None
        self._settled_s = 0.0
        self._next_try_s = 0.0
        self._next_cut_s = 0.0
        self._calm_until_s = 0.0
        self._rise_to = lowest

    @property
    def level(self) -> int:
        """Requests at once."""
        return self._level

    @property
    def settled(self) -> int:
        """The level that was last found to pay, or was begun with: the one below, while a higher one is being tried."""
        return self._level if self._below is None else self._below[0]

    def sample(self, now_s: float, received_bytes: int, *, busy: bool) -> int:
        """Take in how far things are. Returns the level from now on.

        Args:
            now_s: any clock that does not run backwards.
            received_bytes: since the begin.
            busy: as many requests are running as may; else nothing can be learned.
        """
        if now_s < self._calm_until_s:
            self._since = None
            return self._level
        if self._level < self._rise_to:
            self._calm_until_s = now_s + RISE_S
            self._next_try_s = now_s + HOLD_S
            return self._change(now_s, self._level + 1)
        if not busy or now_s < self._settled_s:
            self._since = None
            return self._level
        if self._since is None:
            self._since = now_s, received_bytes
        begun_s, before = self._since
        if now_s - begun_s < MEASURE_S:
            return self._level
        self._since = now_s, received_bytes
        return self._judge(now_s, (received_bytes - before) / (now_s - begun_s))

    def slow_down(self, now_s: float) -> int:
        """The server asked for fewer requests. Answers at the same moment count once."""
        self._calm_until_s = now_s + CALM_S
        if now_s >= self._next_cut_s:
            self._next_cut_s = now_s + _CUT_S
            self._rise_to = max(self._lowest, self._level)
            self._below = None
            self._change(now_s, max(1, int(self._level * _LESS)))
        return self._level

    def _judge(self, now_s: float, bytes_per_s: float) -> int:
        if self._below is not None:
            level, brought = self._below
            self._below = None
            if bytes_per_s < brought * GAIN:
                self._next_try_s = now_s + HOLD_S
                return self._change(now_s, level)
        higher = min(self._highest, max(self._level + 1, int(self._level * STEP)))
        if higher > self._level and now_s >= self._next_try_s:
            self._below = self._level, bytes_per_s
            return self._change(now_s, higher)
        return self._level

    def _change(self, now_s: float, level: int) -> int:
        self._level = level
        self._settled_s = now_s + SETTLE_S
        self._since = None
        return level
