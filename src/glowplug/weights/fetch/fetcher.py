"""Fetches a plan's ranges into the buffer: many requests at once, each watched, none trusted to end well.

Worker threads take ranges in the order of their positions, as far as the window reaches. A failed attempt is repeated after a pause
on a new connection and goes on where the last one stopped. A thread of its own (the watch) looks twenty times a second whether more
requests at once would pay (``climb``) and whether one is late (``lateness``); a late one gets a rival, and who is first wins
(``flight`` says why that never leaves a wrong byte). With a seal, a block's digest is compared before its bytes count as there.

What has arrived is told as one number, the position below which everything is there. One error ends all.

Memory: the buffer is the caller's; besides, at most ``rivals.MOST`` times the largest range for second requests, and with ``write``
the largest range for each request at once.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug import threads
from glowplug.errors import IntegrityError
from glowplug.weights.base import FetchStats, Range
from glowplug.weights.fetch.bandwidth import Bandwidth
from glowplug.weights.fetch.blocks import Blocks
from glowplug.weights.fetch.climb import Climb
from glowplug.weights.fetch.flight import Flight
from glowplug.weights.fetch.lateness import Pace
from glowplug.weights.fetch.progress import Progress
from glowplug.weights.fetch.reception import Reception
from glowplug.weights.fetch.rivals import MOST as MOST_RIVALS
from glowplug.weights.fetch.rivals import Rivals
from glowplug.weights.fetch.state import FetchState
from glowplug.weights.fetch.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.errors import GlowplugError
    from glowplug.weights.base import Plan, Source, Verifier
    from glowplug.weights.fetch.blocks import Block, Stretch
    from glowplug.weights.fetch.settings import FetchSettings

LOCAL_THREADS = 8
TICK_S = 0.05
_VERIFY_ATTEMPTS = 3
_CLOSE_TIMEOUT_S = 10.0


class Fetcher:
    """One load. Every method may be called from any thread.

    Args:
        source: where from.
        plan: what, and where to.
        memory: ``plan.ring_bytes`` bytes, writable. Held until ``close``.
        settings: how.
        verifier: sealed digests; the plan must be made for its blocks.
        on_progress: told each time more is complete, with the position; never two at once, never with a lock held.
        on_error: told once, if the fetch fails, before ``wait`` raises.
        write: puts bytes at an offset of the memory, where that is cheaper than to touch fresh pages. Called by several threads.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        memory: memoryview,
        settings: FetchSettings,
        *,
        verifier: Verifier | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
        on_error: Callable[[GlowplugError], None] = lambda _: None,
        write: Callable[[int, memoryview], None] | None = None,
    ) -> None:
        if memory.nbytes < plan.ring_bytes:
            raise ValueError("the memory is smaller than the plan's ring")
        self._source = source
        self._plan = plan
        self._memory = memory.cast("B")
        self._settings = settings
        self._verifier = verifier
        self._write = write
        self._own = threading.local()
        self._blocks = Blocks(plan, verifier.block_bytes) if verifier else None
        self._progress = Progress(plan, source.uri, on_progress=on_progress, on_error=on_error)
        self._chunk_bytes = max((piece.size_bytes for piece in plan.ranges), default=0)
        bandwidth = Bandwidth(settings.max_bandwidth) if settings.max_bandwidth else None
        self._climb = _climb(source, settings, bandwidth)
        self._rivals = Rivals(self._chunk_bytes)
        self._state = state = FetchState()
        self._lock, self._work, self._counts = state.lock, state.work, state.counts
        self._reception = Reception(source, plan, settings, state, climb=self._climb, rivals=self._rivals, bandwidth=bandwidth)
        self._workers = Workers(self._serve, source.uri, self._fail)
        self._idle = 0
        self._cursor = 0
        self._flights: dict[int, Flight] = {}
        self._repairs = 0
        self._consumed = 0
        self._blocked_since: float | None = None
        self._begun_s: float | None = None
        self._ended_s: float | None = None

    # --- for the caller

    def start(self) -> None:
        """Begin. Returns at once. With fewer threads than wanted where the system has no more; without the watch at worst.

        Raises:
            LocalError: not one thread can be started. The fetch has failed then.
        """
        with self._lock:
            if self._begun_s is not None or self._state.is_over:
                return
            self._begun_s = time.monotonic()
            self._spawn(self._climb.level)
            if self._workers.count and not self._source.is_local:
                self._workers.start(self._watch, "watch")
        if self._plan.ranges and not self._workers.count:
            self._fail(threads.none_left())
            raise threads.none_left()
        if not self._plan.ranges:
            self._arrived([])

    def consumed(self, position: int) -> None:
        """All readers are done with everything below this position: its memory may be filled again."""
        with self._lock:
            if position > self._consumed:
                self._consumed = position
                self._work.notify_all()

    @property
    def complete(self) -> int:
        """The position below which everything has arrived and was verified; ``plan.length`` at the end."""
        return self._progress.complete

    @property
    def error(self) -> GlowplugError | None:
        """Why the fetch has failed; None if it has not."""
        return self._progress.error

    def wait(self, position: int, timeout_s: float | None = None) -> int:
        """Block until everything below the position is there, or the time is over. Returns what is complete then.

        Raises:
            GlowplugError: the fetch's error, if it failed before that.
            LocalError: it was closed before that.
        """
        return self._progress.wait(position, timeout_s)

    def stats(self) -> FetchStats:
        """What it has cost so far."""
        with self._lock:
            counts = self._counts
            now = time.monotonic()
            seconds = (self._ended_s or now) - self._begun_s if self._begun_s is not None else 0.0
            blocked_s = counts.blocked_s + (now - self._blocked_since if self._blocked_since is not None else 0.0)
            return FetchStats(
                bytes=self._progress.delivered_bytes,
                bytes_read=counts.read + sum(flight.running for flight in self._flights.values()),
                seconds=seconds,
                requests=counts.requests,
                retries=counts.retries,
                hedges=counts.hedges,
                stalls=counts.stalls,
                throttled=counts.throttled,
                concurrency=self._climb.settled,
                most_at_once=counts.most_at_once,
                chunk_bytes=self._chunk_bytes,
                cpu_s=self._workers.cpu_s,
                blocked_s=blocked_s,
                verified=self._verifier is not None,
            )

    def close(self) -> None:
        """End it, whatever it is at, and wait for its threads. Afterwards nothing refers to the memory any more."""
        self._progress.close()
        with self._lock:
            self._finish("the fetch was closed")
        self._workers.join(_CLOSE_TIMEOUT_S)
        with self._lock:
            self._flights.clear()
            self._rivals.clear()
            self._memory = memoryview(b"")

    # --- threads

    def _finish(self, why: str) -> None:
        """Nothing more is to be fetched. Lock held."""
        if not self._state.is_over:
            self._ended_s = time.monotonic()
            self._state.ended.set()
        for flight in self._flights.values():
            flight.end(why)
        self._work.notify_all()

    def _fail(self, error: GlowplugError) -> None:
        _forget_frames(error)
        with self._lock:
            self._finish("the fetch has failed")
        self._progress.fail(error)

    def _spawn(self, count: int) -> None:
        """Have so many workers, or as many as there are ranges. Lock held."""
        self._workers.grow(min(count, len(self._plan.ranges) + MOST_RIVALS))

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            flight, is_rival = job
            if is_rival:
                self._reception.compete(flight)
            else:
                self._fly(flight)
            self._workers.note_cpu()

    def _next(self) -> tuple[Flight, bool] | None:
        """What to do next, and whether as a rival; waits for it. None at the end."""
        ranges, ring = self._plan.ranges, self._plan.ring_bytes
        with self._lock:
            while not self._state.is_over:
                if self._rivals.wanted:
                    return self._rivals.wanted.pop(0), True
                if self._cursor < len(ranges) and len(self._flights) < self._climb.level:
                    range_ = ranges[self._cursor]
                    now = time.monotonic()
                    if range_.position + range_.size_bytes - self._consumed <= ring:
                        if self._blocked_since is not None:
                            self._counts.blocked_s += now - self._blocked_since
                            self._blocked_since = None
                        flight = Flight(self._cursor, range_, self._landing(range_), now, Pace(now))
                        self._flights[self._cursor] = flight
                        self._counts.most_at_once = max(self._counts.most_at_once, len(self._flights))
                        self._cursor += 1
                        return flight, False
                    if not self._flights and self._blocked_since is None:
                        self._blocked_since = now
                self._idle += 1
                self._work.wait()
                self._idle -= 1
        return None

    def _watch(self) -> None:
        while not self._state.ended.wait(TICK_S):
            with self._lock:
                if not self._state.is_over:
                    self._tick(time.monotonic())

    def _tick(self, now: float) -> None:
        flights = list(self._flights.values())
        received = self._counts.read + sum(flight.running for flight in flights)
        for flight in flights:
            flight.pace.seen(now, flight.received)
            if flight.rival is not None and flight.rival_pace is not None:
                flight.rival_pace.seen(now, flight.rival.received)
        level = self._climb.level
        busy = len(flights) >= level and len(self._plan.ranges) - self._cursor > level
        if self._climb.sample(now, received, busy=busy) > level:
            self._spawn(self._climb.level)
            self._work.notify_all()
        if self._settings.hedge and self._rivals.look(
            flights,
            level=level,
            delivered_bytes=self._progress.delivered_bytes,
            nothing_left=self._cursor == len(self._plan.ranges),
        ):
            if self._idle < len(self._rivals.wanted):
                self._spawn(self._workers.count + 1)
            self._work.notify_all()

    # --- one range

    def _fly(self, flight: Flight) -> None:
        """Bring a range to its place and see that it counts."""
        self._bring(flight, self._write)
        with self._lock:
            self._rivals.landed(flight, time.monotonic())
            whole = self._blocks.arrived(flight.index) if self._blocks else []
            if whole and self._idle:
                self._work.notify_all()  # digests take a while: another thread may fetch meanwhile
        if self._blocks is None:
            self._arrived([flight.index])
        for block in whole:
            self._verify(block)

    def _bring(self, flight: Flight, write: Callable[[int, memoryview], None] | None = None) -> None:
        """Fill a flight's memory; when this returns, nobody writes there any more."""
        self._reception.receive(flight)
        if write is not None:
            write(flight.range.position % self._plan.ring_bytes, flight.view)
        with self._lock:
            flight.done = True
            flight.view = memoryview(b"")
            if flight.rival is not None:
                flight.rival.end("the first request was faster")
            self._rivals.give_back(flight.won)  # of one that came at the same moment
            self._flights.pop(flight.index, None)

    def _arrived(self, indices: list[int]) -> None:
        if self._progress.arrived(indices):
            with self._lock:
                self._finish("all is there")

    # --- digests

    def _verify(self, block: Block) -> None:
        """Compare a block's digest, fetching it anew if it is wrong."""
        assert self._blocks is not None  # noqa: S101  for the type checker
        assert self._verifier is not None  # noqa: S101
        stretches = self._blocks.stretches(block)
        views = [self._place(stretch) for stretch in stretches]
        for attempt in range(_VERIFY_ATTEMPTS):
            if attempt:
                for stretch in stretches:
                    self._read_again(block, stretch)
            if self._verifier.check(block.file, block.number, views):
                with self._lock:
                    ready = self._blocks.verified(block)
                self._arrived(ready)
                return
        name = self._source.name_of(self._plan.checkpoint.files[block.file])
        start, end = self._blocks.bounds(block)
        raise IntegrityError(
            f"{name}, bytes {start}-{end - 1}: not what was sealed, in {_VERIFY_ATTEMPTS} attempts",
            object=name,
            hint="publish the checkpoint again, or seal it anew if it was changed on purpose",
        )

    def _read_again(self, block: Block, stretch: Stretch) -> None:
        range_ = Range(block.file, stretch.start, stretch.end, stretch.position)
        now = time.monotonic()
        with self._lock:
            self._state.raise_if_over()
            self._repairs += 1
            flight = Flight(-self._repairs, range_, self._place(range_), now, Pace(now))
            self._flights[flight.index] = flight
        self._bring(flight)

    def _landing(self, range_: Range) -> memoryview:
        """Where a range is received: its place, or the thread's own memory, from where it is written there."""
        if self._write is None:
            return self._place(range_)
        mine: memoryview | None = getattr(self._own, "memory", None)
        if mine is None:
            mine = self._own.memory = memoryview(bytearray(self._chunk_bytes))
        return mine[: range_.size_bytes]

    def _place(self, range_: Range | Stretch) -> memoryview:
        place = range_.position % self._plan.ring_bytes
        return self._memory[place : place + range_.end - range_.start]


def _climb(source: Source, settings: FetchSettings, bandwidth: Bandwidth | None) -> Climb:
    """What decides on requests at once: bounds that are equal leave it nothing to try."""
    if source.is_local:
        return Climb(settings.concurrency or LOCAL_THREADS, settings.concurrency or LOCAL_THREADS)
    if settings.concurrency is not None:
        return Climb(settings.concurrency, settings.concurrency)
    most = settings.max_concurrency
    if bandwidth is not None:
        most = max(1, min(most, bandwidth.most_requests))
    return Climb(min(settings.min_concurrency, most), most)


def _forget_frames(error: BaseException) -> None:
    """Drop the traces of an error that is kept: their frames hold views of the buffer, which could then not be unmapped."""
    seen: set[int] = set()
    while error and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = None
        following = error.__cause__ or error.__context__
        if following is None:
            return
        error = following
