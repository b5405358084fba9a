"""A cap on bytes a second that all threads of a fetch share: a pod that loads must not starve the others on its node.

A bucket of tokens that may go into debt: who takes is told how long to wait for what was taken, so the order is that of the asking
and no large piece waits forever. Bytes that a kernel has received but nobody has read yet are not counted; over a few seconds the
sockets' buffers make no difference.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST_S = 0.1
_PIECE_S = 0.05
_PER_REQUEST = 4 * MIB


class Bandwidth:
    """Safe for any number of threads.

    Args:
        bytes_per_s: the cap.
        clock: seconds; tests replace it.
    """

    def __init__(self, bytes_per_s: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until_s = clock()

    @property
    def piece_bytes(self) -> int:
        """A piece small enough that no taker waits much longer than its share."""
        return max(16 * KIB, min(MIB, int(self._bytes_per_s * _PIECE_S)))

    @property
    def most_requests(self) -> int:
        """Requests at once that such a line can keep busy; more would only make each so slow that the server gives it up."""
        return max(2, -(-self._bytes_per_s // _PER_REQUEST))

    def take(self, size_bytes: int) -> float:
        """Count bytes that have arrived. Returns the seconds to wait before the next ones are received; does not wait."""
        with self._lock:
            now = self._clock()
            # What was not used in the last tenth of a second is lost.
            self._paid_until_s = max(self._paid_until_s, now - _BURST_S) + size_bytes / self._bytes_per_s
            return max(0.0, self._paid_until_s - now)
