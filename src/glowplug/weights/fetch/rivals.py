"""Second requests for ranges that are late: which range gets one, how many there may be, and the memory they write to.

``lateness`` says whether a request is late; here is decided what that is worth. Everything is called under the fetcher's lock.

Memory: ``MOST`` times the largest range, taken when it is first needed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from glowplug.weights.fetch.lateness import Pace, Peers

if TYPE_CHECKING:
    from glowplug.weights.fetch.flight import Flight
    from glowplug.weights.fetch.meter import AttemptMeter

MOST = 4
"""At once."""
PER_RANGE = 3
SLOW_SHARE = 0.05
"""Of the bytes may be fetched twice because they are slow; more would not be about single requests any more."""


class Rivals:
    """The second requests of one fetch.

    Args:
        chunk_bytes: largest range.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self.wanted: list[Flight] = []
        """Ranges that wait for a thread to send their second request."""
        self._chunk_bytes = chunk_bytes
        self._peers = Peers()
        self._count = 0
        self._slow_bytes = 0
        self._scratch: list[bytearray] = []

    def landed(self, flight: Flight, now_s: float) -> None:
        """A range is there: others are compared with it."""
        if 2 * flight.range.size_bytes >= self._chunk_bytes:
            self._peers.ended(now_s - flight.begun_s)

    def look(self, flights: list[Flight], *, level: int, delivered_bytes: int, nothing_left: bool) -> bool:
        """Decide on second requests. Whether another one is wanted now.

        Args:
            flights: all that run.
            level: requests at once.
            delivered_bytes: so far.
            nothing_left: no range waits to be taken, so the last ones are all that is waited for.
        """
        front = min(flights, key=lambda flight: flight.range.position, default=None)
        urgent = set(flights) if nothing_left else {front}
        stalled = {
            flight for flight in flights if flight.pace.is_stalled(flight.range.size_bytes, self._peers, urgent=flight in urgent)
        }
        # Where most are stalled it is the server or the network, and asking again and again would not help them.
        most = PER_RANGE if 2 * len(stalled) <= level else 1
        allowance = max(MOST * self._chunk_bytes, int(SLOW_SHARE * delivered_bytes))
        before = len(self.wanted)
        for flight in flights:
            size = flight.range.size_bytes
            if flight.rivals >= most:
                continue
            if flight.rival is not None and flight.rival_pace is not None:
                if flight.rival_pace.is_stalled(size, self._peers):
                    flight.rival.end("this request stalled as well")
            elif flight.may_have_rival and self._count < MOST:
                slow = flight.pace.is_slow(size, self._peers, urgent=flight in urgent)
                if flight in stalled or (slow and self._slow_bytes + size <= allowance):
                    self._slow_bytes += 0 if flight in stalled else size - flight.received
                    self._count += 1
                    flight.rivals += 1
                    flight.wanted = True
                    self.wanted.append(flight)
        return len(self.wanted) > before

    def enter(self, flight: Flight, meter: AttemptMeter) -> bytearray:
        """A second request begins. The memory it writes to, as long as the largest range."""
        flight.rival, flight.rival_pace = meter, Pace(time.monotonic())
        return self._scratch.pop() if self._scratch else bytearray(self._chunk_bytes)

    def leave(self, flight: Flight, scratch: bytearray | None) -> None:
        """A second request has ended; its memory, unless the flight has it now."""
        self._count -= 1
        flight.rival, flight.rival_pace, flight.wanted = None, None, False
        self.give_back(scratch)

    def give_back(self, scratch: bytearray | None) -> None:
        """Memory that is no longer needed."""
        if scratch is not None:
            self._scratch.append(scratch)

    def clear(self) -> None:
        """Let go of all memory."""
        self.wanted.clear()
        self._scratch.clear()
