"""One range on its way: how far it is, who is at it, and who may write to its memory.

**One writer.** Only the thread that took a flight writes to its place in the buffer. A second request for the same range (a hedge)
writes to memory of its own and hands that over; the first thread's request is then ended, and *that thread* copies. So when a
flight is done nobody can still write to its memory, which a window may give to other bytes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.weights.base import Range
    from glowplug.weights.fetch.lateness import Pace
    from glowplug.weights.fetch.meter import AttemptMeter


@dataclass(slots=True, eq=False)
class Flight:
    """All fields are read and written under the fetcher's lock, except by ``view``'s one writer.

    Attributes:
        index: of the range in the plan.
        range: what is fetched.
        view: where to.
        begun_s: when it was taken.
        pace: how fast it is.
        offset: bytes that lie in the view from attempts that have ended.
        meter: of the attempt that runs.
        rival: of the second request that runs.
        rival_pace: how fast that one is.
        rivals: second requests so far.
        wanted: a second request is wanted, or runs.
        won: the range from a second request that was faster. Valid from where the first request was when the second began.
        done: all is in the view.
    """

    index: int
    range: Range
    view: memoryview
    begun_s: float
    pace: Pace
    offset: int = 0
    meter: AttemptMeter | None = None
    rival: AttemptMeter | None = None
    rival_pace: Pace | None = None
    rivals: int = 0
    wanted: bool = False
    won: bytearray | None = None
    done: bool = False

    @property
    def received(self) -> int:
        """Bytes that lie in the view."""
        return self.offset + (self.meter.received if self.meter else 0)

    @property
    def may_have_rival(self) -> bool:
        """Nobody competes for it yet."""
        return not self.done and self.won is None and not self.wanted

    @property
    def running(self) -> int:
        """Bytes received by attempts that have not ended, second requests included."""
        return sum(meter.received for meter in (self.meter, self.rival) if meter)

    def end(self, why: str) -> None:
        """Make all its requests fail at once."""
        for meter in (self.meter, self.rival):
            if meter is not None:
                meter.end(why)
