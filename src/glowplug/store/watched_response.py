"""An HTTP answer that must come with some speed.

A time-out of a socket ends silence only: a server or a proxy that sends a byte now and then is never silent for long enough, and
whoever waits for a listing waits for ever. So what comes is counted against the time spent waiting for it.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

LOW_SPEED_BYTES_PER_S = 8 * 1024
"""Far below what a fetch of weights asks of each of its requests: this is for the small ones, and for slow lines."""


class TooSlow(OSError):
    """Something comes, and it would take for ever."""


class WatchedResponse(http.client.HTTPResponse):
    """The answer to a GET or HEAD, watched. Of a PUT or POST none is: S3 sends spaces for minutes while it completes an upload.

    Args:
        sock: as in the standard library.
        debuglevel: the same.
        method: the same.
        url: the same.
        window_s: longest silence, and how long it may be slow.
    """

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None, *, window_s: float
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        if method in {"GET", "HEAD"}:
            self.fp = io.BufferedReader(_Watched(self.fp.detach(), sock, window_s))


class _Watched(io.RawIOBase):
    """What a socket receives, as long as it is fast enough. Only the time in which the reader waits for it counts."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, window_s: float) -> None:
        self._raw = raw
        self._sock = sock
        self._window_s = window_s
        self._waited_s = 0.0
        self._came = 0

    def readable(self) -> bool:
        return True

    def readinto(self, view: memoryview, /) -> int | None:  # type: ignore[override]  # any buffer; it is a memoryview here
        # Before more is waited for, not after it has come: the last bytes of a slow answer are an answer.
        if self._waited_s >= self._window_s:
            if self._came < LOW_SPEED_BYTES_PER_S * self._waited_s:
                raise TooSlow(f"the answer came at less than {LOW_SPEED_BYTES_PER_S // 1024} KiB/s for {self._window_s:g} s")
            self._waited_s, self._came = 0.0, 0
        # At least a second, so that what has been slow until now may still end.
        self._sock.settimeout(max(min(1.0, self._window_s), self._window_s - self._waited_s))
        begun_s = time.monotonic()
        count: int | None = self._raw.readinto(view)
        self._waited_s += time.monotonic() - begun_s
        self._came += count or 0
        return count

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError):  # closed already
                self._sock.settimeout(self._window_s)
            self._raw.close()
        super().close()
