"""What watches one attempt at a range: counts its bytes, holds it to a speed, and lets another thread end it.

The thread that receives calls ``advance``; everybody else only reads the count and calls ``end``. Nothing here takes a lock: of
``end`` and ``connected`` each first writes its own word and then reads the other's, so one of them sees both.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug.units import format_bytes, format_seconds
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.bandwidth import Bandwidth
    from glowplug.weights.settings import FetchSettings


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
        self._window_s = now
        self._window_received = 0

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
            self._window_s += wait_s
        if self._watched:
            self._judge(time.monotonic())

    def end(self, why: str) -> None:
        """Make the attempt fail at once. From any thread, at any time, more than once."""
        self._why = self._why or why
        self._ended.set()
        if self._abort is not None:
            self._abort()

    def _judge(self, now: float) -> None:
        settings = self._settings
        passed_s = now - self._window_s
        if passed_s >= settings.low_speed_window_s:
            came = self.received - self._window_received
            if came < settings.low_speed_bytes_per_s * passed_s:
                self.was_slow = True
                raise Retry(f"it brought {format_bytes(came)} in {format_seconds(passed_s)}")
            self._window_s, self._window_received = now, self.received
        if now > self._deadline_s:
            self.was_slow = True
            raise Retry(f"it did not end within {format_seconds(settings.range_timeout_s)}")
