"""A step that may take so long and no longer, and that can be called off from another thread.

The worker asks ``check()`` between pieces of work, and takes ``commit()`` around the moment after which its result becomes
visible. Whoever waits calls ``cancel()``: it either prevents the commit or waits until it is through, so that a result is never
half visible. Nothing here interrupts a system call; callers bound those themselves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from glowplug.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator


_COMMIT_S = 5.0


class Deadline:
    """Seconds left for one step. Thread-safe.

    Args:
        seconds: how long the step may take from now on; None for as long as it likes.
        step: its name, for the error.
    """

    def __init__(self, seconds: float | None, *, step: str) -> None:
        self._end_s = None if seconds is None else time.monotonic() + seconds
        self._seconds = seconds
        self._step = step
        self._lock = threading.Lock()
        self._cancelled: str | None = None

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, 0 at the least; None without a limit."""
        return None if self._end_s is None else max(0.0, self._end_s - time.monotonic())

    def cancel(self, reason: str) -> None:
        """Call the step off. Waits while a commit is under way, at most 5 s; afterwards none can begin."""
        self._cancelled = self._cancelled or reason
        if self._lock.acquire(timeout=_COMMIT_S):
            self._lock.release()

    def check(self) -> None:
        """Go on, or raise.

        Raises:
            DeadlineExceeded: the time is up, or the step was called off.
        """
        if self._cancelled:
            raise DeadlineExceeded(f"{self._step} was called off: {self._cancelled}", object=self._step)
        if self._end_s is not None and time.monotonic() >= self._end_s:
            raise DeadlineExceeded(
                f"{self._step} took longer than {self._seconds:g} s", object=self._step, hint=f"raise --{self._step}-deadline"
            )

    @contextlib.contextmanager
    def commit(self) -> Iterator[None]:
        """The moment that makes the result visible. Raises DeadlineExceeded instead if the step is called off or late."""
        with self._lock:
            self.check()
            yield


def unbounded(step: str) -> Deadline:
    """A deadline that never passes, for a person who can press Ctrl-C."""
    return Deadline(None, step=step)
