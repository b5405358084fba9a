"""Small requests, tried a few times: for headers and configuration files, where nothing is gained by going on in the middle."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from glowplug.errors import Unreachable
from glowplug.store.proxy import hint_for
from glowplug.units import KIB, MIB
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import Meter

_T = TypeVar("_T")

ATTEMPTS = 4
WINDOW_S = 10.0
LOW_SPEED_BYTES_PER_S = 8 * KIB
_PAUSE_S = 0.2


class Patience:
    """Ends a request that has been silent, or brought next to nothing, for too long. Satisfies ``weights.base.Meter``."""

    most_bytes = MIB

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._came = 0

    def connected(self, abort: Callable[[], None]) -> None:
        """Nobody ends a small request from outside."""

    def advance(self, size_bytes: int) -> None:
        """See ``Meter.advance``."""
        now = time.monotonic()
        self._came += size_bytes
        if now - self._since_s > WINDOW_S:
            if not self._came:
                raise Retry("no answer in time")
            if self._came < LOW_SPEED_BYTES_PER_S * WINDOW_S:
                raise Retry(f"the answer came at less than {LOW_SPEED_BYTES_PER_S // KIB} KiB/s for {WINDOW_S:.0f} s")
            self._since_s, self._came = now, 0


def with_patience(request: Callable[[Meter], _T], *, name: str) -> _T:
    """What the request returns, after up to ``ATTEMPTS`` attempts with a back-off and jitter. Blocks.

    Args:
        request: called once an attempt.
        name: of the object, for the error.

    Raises:
        Unreachable: all attempts failed.
    """
    reason = hint = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, _PAUSE_S * 2 ** (attempt - 1)))
        try:
            return request(Patience())
        except Retry as retry:
            reason, hint = retry.reason, retry.hint
    hint = hint or hint_for(reason, "check the URL, the network policy and the route to the server")
    raise Unreachable(f"{name} can't be read after {ATTEMPTS} attempts: {reason}", object=name, hint=hint)
