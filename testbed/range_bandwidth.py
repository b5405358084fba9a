"""A network of a given speed, shared by all connections of a server."""

from __future__ import annotations

import re
import threading
import time

_UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_BURST_S = 0.02


class Bandwidth:
    """Lets so many bytes a second pass, in the order in which they ask. Safe for any number of threads.

    Args:
        bytes_per_s: of all together; None for no limit.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        self.bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    @property
    def slice_bytes(self) -> int:
        """Bytes to send at a time: about 10 ms of the line, so that connections take turns."""
        if self.bytes_per_s is None:
            return 1 << 30
        return max(4096, min(1 << 20, int(self.bytes_per_s / 100)))

    def take(self, size_bytes: int) -> None:
        """Wait until these bytes may pass."""
        if self.bytes_per_s is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at_s = max(self._free_at_s, now - _BURST_S) + size_bytes / self.bytes_per_s
            wait_s = self._free_at_s - now
        if wait_s > 0:
            time.sleep(wait_s)


def parse_bandwidth(text: str) -> float:
    """Bytes a second from ``150MB/s``, ``1.5GiB/s`` or a bare number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?|)B?(?:/s)?", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a speed: write 150MB/s or 100MiB/s")
    return float(match[1]) * _UNITS[match[2]]
