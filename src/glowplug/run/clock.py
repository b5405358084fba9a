"""One clock for a start: seconds since the wrapper began."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds since it was made, on a clock that never jumps."""

    _origin_s: float = field(default_factory=time.monotonic)
    started_at: str = field(
        default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    """Wall-clock time of its making, RFC 3339 in UTC."""

    def now_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._origin_s
