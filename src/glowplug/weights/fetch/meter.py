"""What watches one attempt at a range: counts its bytes, holds it to a speed, and lets another thread end it.

The thread that receives calls ``advance``; everybody else only reads the count and calls ``end``. Nothing here takes a lock: of
``end`` and ``connected`` each first writes its own word and then reads the other's, so one of them sees both.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING

from glowplug.units import format_bytes, format_seconds
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.fetch.bandwidth import Bandwidth
    from glowplug.weights.fetch.settings import FetchSettings

_MARKS = 5


class AttemptMeter:
    """Satisfies ``weights.base.Meter``.

    Args:
        settings: speed and time-outs.
        most_bytes: between two calls of ``advance``.
        bandwidth: the cap, or None.
        local: no speed is demanded of a disk.
    """

    def __init__(self, settings: FetchSettings, most_bytes: int, bandwidth: Bandwidth | None, *, local: bool) -> None:
        self.most_bytes = most_bytes
        self.received = 0
        self.was_slow = False
        """It was ended because it was too slow."""
        self._settings = settings
        self._bandwidth = bandwidth
        self._watched = not local
        self._ended = threading.Event()
        self._why = ""
        self._abort: Callable[[], None] | None = None
        now = time.monotonic()
        self._deadline_s = now + settings.range_timeout_s
        self._marks = collections.deque([(now, 0)])
        """What had been received when, a few times a window; the first is the newest that is a window old."""

    def connected(self, abort: Callable[[], None]) -> None:
        """See ``Meter.connected``."""
        self._abort = abort
        if self._ended.is_set():
            abort()

    def advance(self, size_bytes: int) -> None:
        """See ``Meter.advance``."""
        self.received += size_bytes
        if self._ended.is_set():
            raise Retry(self._why)
        if self._bandwidth is not None and size_bytes:
            wait_s = self._bandwidth.take(size_bytes)
            if wait_s and self._ended.wait(wait_s):
                raise Retry(self._why)
            self._deadline_s += wait_s  # our own doing, not the server's
            self._marks = collections.deque((at_s + wait_s, received) for at_s, received in self._marks)
        if self._watched:
            self._judge(time.monotonic())

    def end(self, why: str) -> None:
        """Make the attempt fail at once. From any thread, at any time, more than once."""
        self._why = self._why or why
        self._ended.set()
        if self._abort is not None:
            self._abort()

    def _judge(self, now: float) -> None:
        settings, marks = self._settings, self._marks
        window_s = settings.low_speed_window_s
        if now - marks[-1][0] >= window_s / _MARKS:
            marks.append((now, self.received))
        while len(marks) > 1 and now - marks[1][0] >= window_s:
            marks.popleft()
        since_s, before = marks[0]
        passed_s, came = now - since_s, self.received - before
        if passed_s >= window_s and came < settings.low_speed_bytes_per_s * passed_s:
            self.was_slow = True
            raise Retry(f"it brought {format_bytes(came)} in {format_seconds(passed_s)}")
        if now > self._deadline_s:
            self.was_slow = True
            raise Retry(f"it did not end within {format_seconds(settings.range_timeout_s)}")
