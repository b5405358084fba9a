"""What the threads of one fetch share: a lock, a condition to wait on, the word that all is over, and the counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass


class Over(Exception):
    """The fetch has ended while this thread was at something."""


@dataclass(slots=True)
class Counts:
    """As in ``base.FetchStats``; ``read`` is of attempts that have ended. Changed under the lock."""

    requests: int = 0
    retries: int = 0
    hedges: int = 0
    stalls: int = 0
    throttled: int = 0
    read: int = 0
    most_at_once: int = 0
    blocked_s: float = 0.0


class FetchState:
    """One lock for everything that changes, so that no order of locks can be wrong."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        """Something to do for a thread: the window or the level has moved, a rival is wanted or has won, or all is over."""
        self.ended = threading.Event()
        self.counts = Counts()

    @property
    def is_over(self) -> bool:
        """Nothing more is to be fetched: all is there, the fetch has failed, or it was closed."""
        return self.ended.is_set()

    def raise_if_over(self) -> None:
        """Raises ``Over``."""
        if self.is_over:
            raise Over
