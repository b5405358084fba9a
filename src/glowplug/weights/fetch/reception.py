"""How one range gets from the source into its memory: attempt after attempt, with pauses, or by a second request that is faster.

An attempt that fails is followed by another one, after a pause that grows and is drawn by chance; it goes on where the last one
stopped. Attempts that fail in a row end the load with one error; one that brought an eighth of the range begins a new row.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from glowplug.errors import Unreachable
from glowplug.store.proxy import hint_for
from glowplug.units import MIB
from glowplug.weights.base import Retry
from glowplug.weights.fetch.meter import AttemptMeter

if TYPE_CHECKING:
    from glowplug.weights.base import Plan, Source
    from glowplug.weights.fetch.bandwidth import Bandwidth
    from glowplug.weights.fetch.climb import Climb
    from glowplug.weights.fetch.flight import Flight
    from glowplug.weights.fetch.rivals import Rivals
    from glowplug.weights.fetch.settings import FetchSettings
    from glowplug.weights.fetch.state import FetchState

_PIECE_BYTES = 8 * MIB
_PAUSE_S = 0.1
"""Upper bound of the first pause; doubles with each failure. Drawn evenly below the bound ("full jitter")."""
_SLOW_DOWN_PAUSE_S = 0.5
_MOST_PAUSE_S = 8.0
_GOOD_PART = 8


class Reception:
    """Called by the worker threads, each with a flight of its own.

    Args:
        source: where from.
        plan: what.
        settings: how.
        state: lock, condition, counts.
        climb: told when the server asks for less.
        rivals: the second requests.
        bandwidth: the cap, or None.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        settings: FetchSettings,
        state: FetchState,
        *,
        climb: Climb,
        rivals: Rivals,
        bandwidth: Bandwidth | None,
    ) -> None:
        self._source = source
        self._plan = plan
        self._settings = settings
        self._state = state
        self._climb = climb
        self._rivals = rivals
        self._bandwidth = bandwidth
        self._most_bytes = min(_PIECE_BYTES, bandwidth.piece_bytes) if bandwidth else _PIECE_BYTES

    def receive(self, flight: Flight) -> None:
        """Fill the flight's view. When this returns, nobody writes there any more.

        Raises:
            Over: the fetch has ended meanwhile.
            Unreachable: too many failed attempts in a row.
            GlowplugError: what no attempt can mend.
        """
        file, size = self._plan.checkpoint.files[flight.range.file], flight.range.size_bytes
        failures = 0
        while not self._take_over(flight):
            meter = self._meter()
            with self._state.lock:
                self._state.raise_if_over()
                if flight.won is not None:
                    continue
                flight.meter = meter
                self._state.counts.requests += 1
            retry = Retry("the source ended early")
            try:
                self._source.read_into(file, flight.range.start + flight.offset, flight.view[flight.offset :], meter)
            except Retry as error:
                retry = Retry(error.reason, slow_down=error.slow_down, hint=error.hint)  # without the frames, which hold the view
            finally:
                with self._state.lock:
                    flight.meter = None
                    flight.offset += meter.received
                    self._state.counts.read += meter.received
            if flight.offset >= size:
                return
            failures = 1 if meter.received >= max(1, size // _GOOD_PART) else failures + 1
            self._pause(flight, failures, retry, meter)

    def compete(self, flight: Flight) -> None:
        """Fetch the rest of a flight a second time, into other memory. One attempt.

        Raises:
            GlowplugError: what no attempt can mend.
        """
        file, size = self._plan.checkpoint.files[flight.range.file], flight.range.size_bytes
        meter = self._meter()
        scratch, offset, won = None, 0, False
        with self._state.lock:
            if not flight.done and flight.won is None and not self._state.is_over:
                scratch, offset = self._rivals.enter(flight, meter), flight.received
                self._state.counts.requests += 1
                self._state.counts.hedges += 1
        try:
            if scratch is not None:
                self._source.read_into(file, flight.range.start + offset, memoryview(scratch)[offset:size], meter)
                won = offset + meter.received >= size
        except Retry as retry:
            with self._state.lock:
                if not flight.done and not self._state.is_over:
                    self._note(retry, meter)
        finally:
            with self._state.lock:
                self._state.counts.read += meter.received
                if won and not flight.done:
                    flight.won, scratch = scratch, None
                    if flight.meter is not None:
                        flight.meter.end("a second request was faster")
                self._rivals.leave(flight, scratch)
                self._state.work.notify_all()

    def _take_over(self, flight: Flight) -> bool:
        """Copy what a second request has brought, if one has. This thread's own request has ended, so nobody else writes."""
        won = flight.won
        if won is None:
            return False
        flight.view[flight.offset :] = memoryview(won)[flight.offset : flight.range.size_bytes]
        with self._state.lock:
            flight.won = None
            self._rivals.give_back(won)
        return True

    def _pause(self, flight: Flight, failures: int, retry: Retry, meter: AttemptMeter) -> None:
        """Wait before the next attempt, unless a second request wins meanwhile; raise if there may be no other one."""
        state = self._state
        with state.lock:
            state.raise_if_over()
            if flight.won is not None:
                return
            self._note(retry, meter)
            if failures >= self._settings.attempts:
                state.work.wait_for(lambda: state.is_over or flight.won is not None or flight.rival is None)
                state.raise_if_over()
                if flight.won is None:
                    raise self._given_up(flight, failures, retry)
                return
            bound_s = (_SLOW_DOWN_PAUSE_S if retry.slow_down else _PAUSE_S) * 2 ** (failures - 1)
            pause_s = random.uniform(0, min(_MOST_PAUSE_S, bound_s))
            state.work.wait_for(lambda: state.is_over or flight.won is not None, pause_s)

    def _note(self, retry: Retry, meter: AttemptMeter) -> None:
        counts = self._state.counts
        counts.retries += 1
        counts.stalls += meter.was_slow
        if retry.slow_down:
            counts.throttled += 1
            self._climb.slow_down(time.monotonic())

    def _given_up(self, flight: Flight, failures: int, retry: Retry) -> Unreachable:
        name = self._source.name_of(self._plan.checkpoint.files[flight.range.file])
        hint = retry.hint or hint_for(retry.reason, "see the store's own log, and check the network between it and this machine")
        if retry.slow_down:
            hint = "set GLOWPLUG_WEIGHTS_CONCURRENCY to fewer requests at once, or raise what the store allows"
        what = f"{name}, bytes {flight.range.start}-{flight.range.end - 1}"
        return Unreachable(f"{what}: given up after {failures} failed attempts: {retry.reason}", object=name, hint=hint)

    def _meter(self) -> AttemptMeter:
        return AttemptMeter(self._settings, self._most_bytes, self._bandwidth, local=self._source.is_local)
