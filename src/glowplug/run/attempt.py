"""One life of the engine: spawn, pass its output through, watch, conclude, and stay until it has ended.

``live`` ends with the engine. What follows is the caller's choice: ``finish`` reports and publishes, ``abandon`` makes room for
another attempt.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.engines.base import HttpReadiness
from glowplug.run import process
from glowplug.run.conclusion import SHUTDOWN_GRACE_S, Conclusion
from glowplug.run.explaining import explain_in_background
from glowplug.run.headers import Headers
from glowplug.run.process import Child
from glowplug.run.pump import Pump, same_target
from glowplug.run.readiness import is_taken, wait_until_ready
from glowplug.run.start import describe_error
from glowplug.threads import begin, none_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.engines.base import Launch
    from glowplug.run.accusing import Accuser
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.run.started import Started

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """How an engine has ended.

    Attributes:
        exit_code: 128 + n if signal n ended it.
        signal: the number of the signal that ended it; 0 if it exited.
        spawned_s: when it was spawned, on the start's clock.
        ended_s: when it had ended.
        was_ready: it had been ready before.
        watched: whether it was ready would have been seen.
        told: a signal that means "end" had been passed on to it.
        lines: what it wrote last.
    """

    exit_code: int
    signal: int
    spawned_s: float
    ended_s: float
    was_ready: bool
    watched: bool
    told: bool
    lines: tuple[str, ...]

    @property
    def lived_s(self) -> float:
        """Seconds from the spawn to the end."""
        return self.ended_s - self.spawned_s


@dataclass
class Attempt:
    """The engine, from its spawn to its end.

    Args:
        start: what all steps share.
        program: the file that is run.
        prepared: what was done for it before.
        started: its words and environment.
        accuser: speaks against a generation once the engine is ready.
    """

    start: Start
    program: str
    prepared: Prepared
    started: Started
    accuser: Accuser
    conclusion: Conclusion = field(init=False)
    _headers: Headers = field(init=False)
    gone: threading.Event = field(default_factory=threading.Event)
    was_ready: bool = False
    _child: Child | None = None
    _pumps: list[Pump] = field(default_factory=list)
    _conclude: Callable[[float, int | None], None] = lambda _ready_s, _exit_code: None

    def __post_init__(self) -> None:
        self.conclusion = Conclusion(self.start, self.accuser.speak)
        self._headers = Headers(self.start)

    def live(self) -> Ended:
        """Spawn the engine and stay until it has ended.

        Raises:
            CannotStart: the kernel refuses the file.
        """
        log, lock = self.prepared.launch.log(), threading.Lock()

        def on_line(line: str) -> None:
            with lock:
                log.feed(line, self.start.clock.now_s())

        pumps = self._pumps = self._start_pumps(on_line)
        readiness = self.prepared.launch.readiness
        taken = isinstance(readiness, HttpReadiness) and is_taken(readiness.url)
        if isinstance(readiness, HttpReadiness) and taken:
            self.start.console.warn(
                f"another process answers {readiness.url}: when this engine is ready can't be told, nothing is published"
            )
        begun_s = self.start.clock.now_s()
        env = self.prepared.environment(self.started.env)
        self._headers.lend(self.prepared, env)
        try:
            child = self._child = Child.spawn(
                self.program,
                self.started.argv,
                env,
                stdout=pumps[0].inlet if pumps else 1,
                stderr=pumps[-1].inlet if pumps else 2,
                group=not os.isatty(0),
            )
        finally:
            for pump in pumps:
                pump.release()
        spawned_s = self.start.clock.now_s()
        self.start.steps.note("spawn", begun_s, spawned_s)
        self.start.weights.engine_runs()
        explain_in_background(self.start, self.prepared)

        def conclude(ready_s: float, exit_code: int | None) -> None:
            for pump in pumps:
                pump.stop_reading_lines()
            if not exit_code:
                self._headers.keep()
            try:
                self.conclusion.conclude(self.prepared, log, spawned_s=spawned_s, ready_s=ready_s, exit_code=exit_code)
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine serves on, whatever became of the report
                self.start.console.warn(f"no report and no capture: {describe_error(error)}")

        self._conclude = conclude
        watcher = self._watch(self.prepared.launch, conclude, taken=taken)
        exit_code, told = _wait(child)
        ended_s = self.start.clock.now_s()
        self._close(watcher)
        # What it says to people goes to the standard error, which is the last pump.
        lines = tuple(line for pump in pumps for line in pump.last_lines)
        watched = watcher is not None and ended_s < self.start.options.ready_timeout_s
        return Ended(exit_code, child.signal, spawned_s, ended_s, self.was_ready, watched, told, lines)

    def finish(self, ended: Ended) -> None:
        """Report and publish, as far as that has not been done, and let the last output out."""
        self.conclusion.finish(ended.exit_code, lambda: self._conclude(ended.ended_s, ended.exit_code))
        self._drain(process.stop_came)

    def abandon(self, ended: Ended) -> None:
        """Make room for another attempt: end what the engine has left running, and let the last output out."""
        if self._child is not None:
            self._child.end_group()
        self._headers.take_back()
        readiness = self.prepared.launch.readiness
        if isinstance(readiness, HttpReadiness) and ended.watched:
            grace = Deadline(SHUTDOWN_GRACE_S, step="shutdown")
            while grace.remaining_s and is_taken(readiness.url):  # by what has just been killed
                time.sleep(_POLL_S)
        self.start.steps.note("failed start", ended.spawned_s, ended.ended_s)
        self._drain(lambda: process.pending_stop() is not None)  # which stays for the caller

    def _start_pumps(self, on_line: Callable[[str], None]) -> list[Pump]:
        """What passes the output through, at work already; nothing where no thread can be had, and the engine writes by itself."""
        pumps: list[Pump] = []
        for target in (1,) if same_target(1, 2) else (1, 2):
            pump = Pump(target, on_line)
            if not pump.start():
                for started in pumps:
                    started.release()
                self.start.console.warn(f"the engine's output is not read, and the report will say little: {none_left().line()}")
                return []
            pumps.append(pump)
        return pumps

    def _watch(self, launch: Launch, conclude: Callable[[float, None], None], *, taken: bool) -> threading.Thread | None:
        """Wait for readiness in a thread, and then conclude there. None for a command that is done when it exits."""
        if not isinstance(launch.readiness, HttpReadiness) or taken:
            return None
        url = launch.readiness.url

        def watch() -> None:
            ready_s = wait_until_ready(url, self.gone, self.start.clock.now_s, timeout_s=self.start.options.ready_timeout_s)
            if ready_s is not None:
                self.was_ready = True
                conclude(ready_s, None)
            elif not self.gone.is_set():
                after = f"{self.start.options.ready_timeout_s:g} s"
                self.start.console.warn(f"not ready after {after}, by {url}: nothing will be published; the engine goes on")

        thread = threading.Thread(target=watch, name="glowplug-watch", daemon=True)
        if not begin(thread):
            self.start.console.warn(f"when the engine is ready is not watched, nothing will be published: {none_left().line()}")
            return None
        return thread

    def _close(self, watcher: threading.Thread | None) -> None:
        """The engine has ended: pass on its last words, and call a capture off."""
        self.gone.set()
        self.start.weights.close()
        self.conclusion.engine_gone()
        grace = Deadline(SHUTDOWN_GRACE_S, step="shutdown")  # for all together: a child that the engine left may hold the pipes
        for pump in self._pumps:
            pump.join(grace.remaining_s)
        if watcher is not None:
            watcher.join(grace.remaining_s)

    def _drain(self, gave_up: Callable[[], bool]) -> None:
        for pump in self._pumps:
            pump.drain(gave_up)
            if pump.error is not None and not isinstance(pump.error, BrokenPipeError):  # a reader that has gone knows that itself
                self.start.console.warn(f"the engine's output could not be written: {pump.error.strerror}; some of it is lost")


def _wait(child: Child) -> tuple[int, bool]:
    """Pass signals on until the engine has ended; its exit code, and whether it was told to end."""
    told = False
    while True:
        exit_code = child.reap()
        if exit_code is not None:
            return exit_code, told
        caught = process.next_signal()
        if caught is not None and caught.number != signal.SIGCHLD:
            told |= process.means_stop(caught.number)
            child.send(caught)
