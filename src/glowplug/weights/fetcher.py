"""Fetches a plan's ranges into the buffer: many requests at once, each watched, none trusted to end well.

Worker threads take ranges in the order of their positions, as far as the window reaches. A failed attempt is repeated after a pause
on a new connection and goes on where the last one stopped. A thread of its own (the watch) looks twenty times a second whether more
requests at once would pay (``climb``) and whether one is late (``lateness``); a late one gets a rival, and who is first wins
(``flight`` says why that never leaves a wrong byte). With a seal, a block's digest is compared before its bytes count as there.

What has arrived is told as one number, the position below which everything is there. One error ends all.

Memory: the buffer is the caller's; besides, at most ``RIVALS`` times the largest range for second requests, and 4 KiB a thread.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.errors import GlowplugError, IntegrityError, LocalError, Unreachable
from glowplug.units import MIB
from glowplug.weights.bandwidth import Bandwidth
from glowplug.weights.base import FetchStats, Range, Retry
from glowplug.weights.blocks import Blocks
from glowplug.weights.climb import Climb
from glowplug.weights.flight import Flight
from glowplug.weights.lateness import Pace, Peers
from glowplug.weights.meter import AttemptMeter
from glowplug.weights.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import Plan, Source, Verifier
    from glowplug.weights.blocks import Block, Stretch
    from glowplug.weights.settings import FetchSettings

RIVALS = 4
"""Second requests at once."""
LOCAL_THREADS = 8
TICK_S = 0.05
_REMOTE_PIECE_BYTES = 8 * MIB
_LOCAL_PIECE_BYTES = 8 * MIB
_PAUSE_S = 0.1
"""Upper bound of the first pause; doubles with each failure. Drawn evenly below the bound ("full jitter")."""
_SLOW_DOWN_PAUSE_S = 0.5
_MOST_PAUSE_S = 8.0
_RIVALS_PER_RANGE = 3
_SLOW_SHARE = 0.05
"""Of the bytes may be fetched twice because they are slow; more would not be about single requests any more."""
_VERIFY_ATTEMPTS = 3
_CLOSE_TIMEOUT_S = 10.0


_WATCH = "glowplug-fetch-watch"


class _Over(Exception):
    """The fetch has ended while this thread was at something."""


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    retries: int = 0
    hedges: int = 0
    stalls: int = 0
    throttled: int = 0
    read: int = 0
    slow_bytes: int = 0
    blocked_s: float = 0.0


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
    ) -> None:
        if memory.nbytes < plan.ring_bytes:
            raise ValueError("the memory is smaller than the plan's ring")
        self._source = source
        self._plan = plan
        self._memory = memory.cast("B")
        self._settings = settings
        self._verifier = verifier
        self._blocks = Blocks(plan, verifier.block_bytes) if verifier else None
        self._progress = Progress(plan, source.uri, on_progress=on_progress, on_error=on_error)
        self._chunk_bytes = max((piece.size_bytes for piece in plan.ranges), default=0)
        self._bandwidth = Bandwidth(settings.max_bandwidth) if settings.max_bandwidth else None
        self._climb = _climb(source, settings, self._bandwidth)
        self._most_bytes = _LOCAL_PIECE_BYTES if source.is_local else _REMOTE_PIECE_BYTES
        if self._bandwidth:
            self._most_bytes = min(self._most_bytes, self._bandwidth.piece_bytes)

        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """Something to do for a thread: the window or the level has moved, a rival is wanted or has won, or all is over."""
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._cpu_s: dict[str, float] = {}
        self._workers = 0
        self._idle = 0
        self._cursor = 0
        self._flights: dict[int, Flight] = {}
        self._wanted: list[Flight] = []
        self._rivals = 0
        self._scratch: list[bytearray] = []
        self._peers = Peers()
        self._repairs = 0
        self._consumed = 0
        self._counts = _Counts()
        self._blocked_since: float | None = None
        self._begun_s: float | None = None
        self._ended_s: float | None = None

    # --- for the caller

    def start(self) -> None:
        """Begin. Returns at once."""
        with self._lock:
            if self._begun_s is not None or self._is_over:
                return
            self._begun_s = time.monotonic()
            self._spawn(self._climb.level)
            if not self._source.is_local:
                self._start_thread(self._watch, _WATCH)
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
                concurrency=self._climb.level,
                chunk_bytes=self._chunk_bytes,
                cpu_s=sum(self._cpu_s.values()),
                blocked_s=blocked_s,
                verified=self._verifier is not None,
            )

    def close(self) -> None:
        """End it, whatever it is at, and wait for its threads. Afterwards nothing refers to the memory any more."""
        self._progress.close()
        with self._lock:
            self._finish("the fetch was closed")
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_CLOSE_TIMEOUT_S)
        with self._lock:
            self._flights.clear()
            self._wanted.clear()
            self._scratch.clear()
            self._memory = memoryview(b"")

    # --- threads

    @property
    def _is_over(self) -> bool:
        return self._ended.is_set()

    def _finish(self, why: str) -> None:
        """Nothing more is to be fetched. Lock held."""
        if not self._is_over:
            self._ended_s = time.monotonic()
            self._ended.set()
        for flight in self._flights.values():
            flight.end(why)
        self._work.notify_all()

    def _fail(self, error: GlowplugError) -> None:
        _forget_frames(error)
        with self._lock:
            self._finish("the fetch has failed")
        self._progress.fail(error)

    def _raise_if_over(self) -> None:
        if self._is_over:
            raise _Over

    def _spawn(self, count: int) -> None:
        """Have so many workers, or as many as there are ranges. Lock held."""
        for number in range(self._workers, min(count, len(self._plan.ranges) + RIVALS)):
            self._workers += 1
            self._start_thread(self._serve, f"glowplug-fetch-{number}")

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._live, args=(target,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _live(self, target: Callable[[], None]) -> None:
        """A thread's life: nothing that goes wrong in it leaves the others, or a reader, waiting."""
        try:
            target()
        except _Over:
            pass
        except GlowplugError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(LocalError(f"the weights' fetch broke: {type(error).__name__}: {error}", object=self._source.uri))
            raise
        finally:
            self._cpu_s[threading.current_thread().name] = time.thread_time()

    def _serve(self) -> None:
        name = threading.current_thread().name
        while (job := self._next()) is not None:
            flight, is_rival = job
            if is_rival:
                self._compete(flight)
            else:
                self._fly(flight)
            self._cpu_s[name] = time.thread_time()

    def _next(self) -> tuple[Flight, bool] | None:
        """What to do next, and whether as a rival; waits for it. None at the end."""
        ranges, ring = self._plan.ranges, self._plan.ring_bytes
        with self._lock:
            while not self._is_over:
                if self._wanted:
                    return self._wanted.pop(0), True
                if self._cursor < len(ranges) and len(self._flights) < self._climb.level:
                    range_ = ranges[self._cursor]
                    now = time.monotonic()
                    if range_.position + range_.size_bytes - self._consumed <= ring:
                        if self._blocked_since is not None:
                            self._counts.blocked_s += now - self._blocked_since
                            self._blocked_since = None
                        flight = Flight(self._cursor, range_, self._place(range_), now, Pace(now))
                        self._flights[self._cursor] = flight
                        self._cursor += 1
                        return flight, False
                    if not self._flights and self._blocked_since is None:
                        self._blocked_since = now
                self._idle += 1
                self._work.wait()
                self._idle -= 1
        return None

    def _watch(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                if not self._is_over:
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
        if self._settings.hedge:
            self._want_rivals(flights)

    def _want_rivals(self, flights: list[Flight]) -> None:
        """Ask for second requests where they are worth while. Lock held."""
        front = min(flights, key=lambda flight: flight.range.position, default=None)
        urgent = set(flights) if self._cursor == len(self._plan.ranges) else {front}
        stalled = {
            flight for flight in flights if flight.pace.is_stalled(flight.range.size_bytes, self._peers, urgent=flight in urgent)
        }
        # Where most are stalled it is the server or the network, and asking again and again would not help them.
        most = _RIVALS_PER_RANGE if 2 * len(stalled) <= self._climb.level else 1
        allowance = max(RIVALS * self._chunk_bytes, int(_SLOW_SHARE * self._progress.delivered_bytes))
        for flight in flights:
            size = flight.range.size_bytes
            if flight.rival is not None and flight.rival_pace is not None and flight.rivals < most:
                if flight.rival_pace.is_stalled(size, self._peers):
                    flight.rival.end("this request stalled as well")
            elif flight.may_have_rival and flight.rivals < most and self._rivals < RIVALS:
                slow = flight.pace.is_slow(size, self._peers, urgent=flight in urgent)
                if flight in stalled or (slow and self._counts.slow_bytes + size <= allowance):
                    self._counts.slow_bytes += 0 if flight in stalled else size - flight.received
                    self._want_rival(flight)

    def _want_rival(self, flight: Flight) -> None:
        self._rivals += 1
        flight.rivals += 1
        flight.wanted = True
        self._wanted.append(flight)
        if self._idle < len(self._wanted):
            self._spawn(self._workers + 1)
        self._work.notify_all()

    # --- one range

    def _fly(self, flight: Flight) -> None:
        """Bring a range to its place and see that it counts."""
        self._bring(flight)
        with self._lock:
            if 2 * flight.range.size_bytes >= self._chunk_bytes:
                self._peers.ended(time.monotonic() - flight.begun_s)
            whole = self._blocks.arrived(flight.index) if self._blocks else []
            if whole and self._idle:
                self._work.notify_all()  # digests take a while: another thread may fetch meanwhile
        if self._blocks is None:
            self._arrived([flight.index])
        for block in whole:
            self._verify(block)

    def _bring(self, flight: Flight) -> None:
        """Fill a flight's memory; when this returns, nobody writes there any more."""
        self._receive(flight)
        with self._lock:
            flight.done = True
            flight.view = memoryview(b"")
            if flight.rival is not None:
                flight.rival.end("the first request was faster")
            self._flights.pop(flight.index, None)

    def _arrived(self, indices: list[int]) -> None:
        if self._progress.arrived(indices):
            with self._lock:
                self._finish("all is there")

    def _receive(self, flight: Flight) -> None:
        """Fill the flight's view: attempt after attempt, or from a rival that is faster."""
        file = self._plan.checkpoint.files[flight.range.file]
        size = flight.range.size_bytes
        failures = 0
        while True:
            meter = self._meter()
            with self._lock:
                self._raise_if_over()
                if flight.won is not None:
                    break
                flight.meter = meter
                self._counts.requests += 1
            retry = Retry("the source ended early")
            try:
                self._source.read_into(file, flight.range.start + flight.offset, flight.view[flight.offset :], meter)
            except Retry as error:
                retry = Retry(error.reason, slow_down=error.slow_down)
            finally:
                with self._lock:
                    flight.meter = None
                    flight.offset += meter.received
                    self._counts.read += meter.received
            if flight.offset >= size:
                return
            failures = 1 if meter.received >= max(1, size // 8) else failures + 1
            with self._lock:
                self._raise_if_over()
                if flight.won is not None:
                    break
                self._note(retry, meter)
                if failures >= self._settings.attempts:
                    self._work.wait_for(lambda: self._is_over or flight.won is not None or flight.rival is None)
                    self._raise_if_over()
                    if flight.won is None:
                        raise self._given_up(flight, failures, retry)
                    break
                bound_s = min(_MOST_PAUSE_S, (_SLOW_DOWN_PAUSE_S if retry.slow_down else _PAUSE_S) * 2 ** (failures - 1))
                self._work.wait_for(lambda: self._is_over or flight.won is not None, random.uniform(0, bound_s))
        scratch = flight.won
        flight.view[flight.offset :] = memoryview(scratch)[flight.offset : size]
        with self._lock:
            flight.won = None
            self._scratch.append(scratch)

    def _compete(self, flight: Flight) -> None:
        """Fetch the rest of a range a second time, into memory of our own. One attempt."""
        file, size = self._plan.checkpoint.files[flight.range.file], flight.range.size_bytes
        meter = self._meter()
        with self._lock:
            scratch = None
            if not flight.done and flight.won is None and not self._is_over:
                offset = flight.received
                flight.rival, flight.rival_pace = meter, Pace(time.monotonic())
                self._counts.requests += 1
                self._counts.hedges += 1
                scratch = self._scratch.pop() if self._scratch else bytearray(self._chunk_bytes)
        won = False
        try:
            if scratch is not None:
                self._source.read_into(file, flight.range.start + offset, memoryview(scratch)[offset:size], meter)
                won = offset + meter.received >= size
        except Retry as retry:
            with self._lock:
                if not flight.done and not self._is_over:
                    self._note(retry, meter)
        finally:
            with self._lock:
                self._rivals -= 1
                self._counts.read += meter.received
                flight.rival, flight.rival_pace, flight.wanted = None, None, False
                if won and not flight.done:
                    flight.won = scratch
                    if flight.meter is not None:
                        flight.meter.end("a second request was faster")
                elif scratch is not None:
                    self._scratch.append(scratch)
                self._work.notify_all()

    def _note(self, retry: Retry, meter: AttemptMeter) -> None:
        self._counts.retries += 1
        self._counts.stalls += meter.was_slow
        if retry.slow_down:
            self._counts.throttled += 1
            self._climb.slow_down(time.monotonic())

    def _given_up(self, flight: Flight, failures: int, retry: Retry) -> GlowplugError:
        name = self._source.name_of(self._plan.checkpoint.files[flight.range.file])
        hint = "see the store's own log, and check the network between it and this machine"
        if retry.slow_down:
            hint = "set GLOWPLUG_WEIGHTS_CONCURRENCY to fewer requests at once, or raise what the store allows"
        what = f"{name}, bytes {flight.range.start}-{flight.range.end - 1}"
        return Unreachable(f"{what}: given up after {failures} failed attempts: {retry.reason}", object=name, hint=hint)

    def _meter(self) -> AttemptMeter:
        return AttemptMeter(self._settings, self._most_bytes, self._bandwidth, local=self._source.is_local)

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
            self._raise_if_over()
            self._repairs += 1
            flight = Flight(-self._repairs, range_, self._place(range_), now, Pace(now))
            self._flights[flight.index] = flight
        self._bring(flight)

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
