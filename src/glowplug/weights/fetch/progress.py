"""How far a fetch is, as one number, and who waits for it.

Ranges arrive in any order; what a reader may use is everything below the first one that is missing. This keeps that number, tells
it to whoever asked to be told, and lets any number of threads wait for a position. It knows nothing of requests.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from glowplug.errors import GlowplugError
    from glowplug.weights.base import Plan


class Progress:
    """Safe for any number of threads.

    Args:
        plan: what is fetched.
        uri: of the checkpoint, for messages.
        on_progress: told the position each time it has grown, in order, never two at once, with no lock held that ``wait`` needs.
        on_error: told once, before ``wait`` raises.
    """

    def __init__(
        self, plan: Plan, uri: str, *, on_progress: Callable[[int], None], on_error: Callable[[GlowplugError], None]
    ) -> None:
        self.delivered_bytes = 0
        self.error: GlowplugError | None = None
        self._plan = plan
        self._uri = uri
        self._on_progress = on_progress
        self._on_error = on_error
        self._moved = threading.Condition()
        self._telling = threading.Lock()
        self._targets: list[int] = []
        """What is waited for: waking a thread that must go on waiting costs as much as receiving a range's head."""
        self._there = bytearray(len(plan.ranges))
        self._front = 0
        self._complete = 0
        self._told = 0
        self._closed = False

    @property
    def complete(self) -> int:
        """Everything below this position is there; ``plan.length`` at the end."""
        return self._complete

    def arrived(self, indices: Iterable[int]) -> bool:
        """These ranges are there and verified. Returns whether now all are; tells the position."""
        ranges = self._plan.ranges
        with self._moved:
            for index in indices:
                self._there[index] = 1
                self.delivered_bytes += ranges[index].size_bytes
            while self._front < len(ranges) and self._there[self._front]:
                self._front += 1
            all_there = self._front == len(ranges)
            self._complete = self._plan.length if all_there else ranges[self._front].position
            if any(target <= self._complete for target in self._targets):
                self._moved.notify_all()
        with self._telling:
            # Another thread may have told it already, or more.
            if (position := self._complete) > self._told:
                self._told = position
                self._on_progress(position)
        return all_there

    def wait(self, position: int, timeout_s: float | None) -> int:
        """See ``Fetcher.wait``."""
        with self._moved:
            self._targets.append(position)
            try:
                self._moved.wait_for(lambda: self._complete >= position or self.error or self._closed, timeout_s)
            finally:
                self._targets.remove(position)
            if self._complete < position:
                if self.error:
                    raise self.error
                if self._closed:
                    raise LocalError("the weights' fetch was ended before it was done", object=self._uri)
            return self._complete

    def fail(self, error: GlowplugError) -> None:
        """Nothing more will come. The first error counts; none does after ``close``, or when all is there."""
        with self._moved:
            if self.error or self._closed or self._front == len(self._plan.ranges):
                return
            self.error = error
        self._on_error(error)
        with self._moved:
            self._moved.notify_all()

    def close(self) -> None:
        """Nothing more will come, as nobody wants it."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
