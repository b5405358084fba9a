"""One life of the engine: spawn, pass its output through, watch, conclude, and stay until it has ended."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.engines.base import HttpReadiness
from glowplug.run import process
from glowplug.run.conclusion import SHUTDOWN_GRACE_S, Conclusion
from glowplug.run.headers import lend_headers
from glowplug.run.process import Child
from glowplug.run.pump import Pump, same_target
from glowplug.run.readiness import is_taken, wait_until_ready
from glowplug.run.start import describe_error
from glowplug.threads import begin, none_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.engines.base import Launch
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.run.weights import Started


@dataclass
class Attempt:
    """The engine, from its spawn to its end.

    Args:
        start: what all steps share.
        program: the file that is run.
        prepared: what was done for it before.
        started: its words and environment.
    """

    start: Start
    program: str
    prepared: Prepared
    started: Started
    conclusion: Conclusion = field(init=False)
    gone: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.conclusion = Conclusion(self.start)

    def supervise(self) -> int:
        """Spawn the engine and stay until it has ended."""
        log, lock = self.prepared.launch.log(), threading.Lock()

        def on_line(line: str) -> None:
            with lock:
                log.feed(line, self.start.clock.now_s())

        pumps = self._pumps(on_line)
        readiness = self.prepared.launch.readiness
        taken = isinstance(readiness, HttpReadiness) and is_taken(readiness.url)
        if isinstance(readiness, HttpReadiness) and taken:
            self.start.console.warn(
                f"another process answers {readiness.url}: when this engine is ready can't be told, nothing is published"
            )
        begun_s = self.start.clock.now_s()
        env = self.prepared.environment(self.started.env)
        keep_headers = lend_headers(self.start, self.prepared, env)
        try:
            child = Child.spawn(
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

        def conclude(ready_s: float, exit_code: int | None) -> None:
            for pump in pumps:
                pump.stop_reading_lines()
            if not exit_code:
                keep_headers()
            try:
                self.conclusion.conclude(self.prepared, log, spawned_s=spawned_s, ready_s=ready_s, exit_code=exit_code)
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine serves on, whatever became of the report
                self.start.console.warn(f"no report and no capture: {describe_error(error)}")

        watcher = self._watch(self.prepared.launch, conclude, taken=taken)
        exit_code = _wait(child)
        self._finish(exit_code, pumps, watcher, conclude)
        return exit_code

    def _pumps(self, on_line: Callable[[str], None]) -> list[Pump]:
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
                conclude(ready_s, None)
            elif not self.gone.is_set():
                after = f"{self.start.options.ready_timeout_s:g} s"
                self.start.console.warn(f"not ready after {after}, by {url}: nothing will be published; the engine goes on")

        thread = threading.Thread(target=watch, name="glowplug-watch", daemon=True)
        if not begin(thread):
            self.start.console.warn(f"when the engine is ready is not watched, nothing will be published: {none_left().line()}")
            return None
        return thread

    def _finish(
        self, exit_code: int, pumps: list[Pump], watcher: threading.Thread | None, conclude: Callable[[float, int], None]
    ) -> None:
        """The engine has ended: pass on its last words, call a capture off, or, for a plain command, begin with it."""
        ended_s = self.start.clock.now_s()
        self.gone.set()
        self.start.weights.close()
        self.conclusion.engine_gone()
        grace = Deadline(SHUTDOWN_GRACE_S, step="shutdown")  # for all together: a child that the engine left may hold the pipes
        for pump in pumps:
            pump.join(grace.remaining_s)
        if watcher is not None:
            watcher.join(grace.remaining_s)
        self.conclusion.finish(exit_code, lambda: conclude(ended_s, exit_code))
        for pump in pumps:
            pump.drain(process.stop_came)
            if pump.error is not None and not isinstance(pump.error, BrokenPipeError):  # a reader that has gone knows that itself
                self.start.console.warn(f"the engine's output could not be written: {pump.error.strerror}; the rest of it is lost")


def _wait(child: Child) -> int:
    """Pass signals on until the engine has ended; its exit code."""
    while True:
        exit_code = child.reap()
        if exit_code is not None:
            return exit_code
        caught = process.next_signal()
        if caught is not None and caught.number != signal.SIGCHLD:
            child.send(caught)
