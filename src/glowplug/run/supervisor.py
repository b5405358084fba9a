"""The supervisor: fetch, restore, spawn, watch, report, publish. One start from its first moment to the engine's exit.

Threads: the main thread waits for signals and for the engine's end, and does nothing else; one thread restores before the spawn;
some fetch weights from the first moment on; one or two pass the output through; one watches for readiness, reports and publishes.
None of them can stop the engine from starting or make it wait for longer than the deadlines say, and the exit code is always the
engine's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.cache.keyring import load_signer
from glowplug.engines.base import ExitReadiness, HttpReadiness, Launch
from glowplug.engines.generic.log import GenericLog
from glowplug.engines.registry import recognise
from glowplug.errors import GlowplugError, LocalError, UsageError
from glowplug.run import process
from glowplug.run.clock import Clock
from glowplug.run.console import Console, terminal_width
from glowplug.run.process import CannotStart, Child
from glowplug.run.pump import Pump, same_target
from glowplug.run.readiness import is_taken, wait_until_ready
from glowplug.run.reporting import Steps, build_report
from glowplug.run.restoring import Prepared, Search, claim_live, describe, look_up_and_restore, note_files, store_for, trust_for
from glowplug.run.weights import Started, Weights
from glowplug.threads import begin, none_left
from glowplug.timeline.outcome import Lookup
from glowplug.timeline.render import glyphs_for, render
from glowplug.timeline.report import EngineInfo, PublishReport
from glowplug.timeline.write import write_report
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from glowplug.engines.base import EngineLog
    from glowplug.run.options import RunOptions
    from glowplug.timeline.report import StartReport

_SHUTDOWN_GRACE_S = 2.0  # for the last output, and for a capture to notice that it was called off
_POLL_S = 0.1
_ENGINE_GONE = "the engine has ended"


def supervise(options: RunOptions, argv: Sequence[str], env: Mapping[str, str], *, clock: Clock | None = None) -> int:
    """Run a command with a shared compile cache.

    Blocks until the command has ended. Changes this process's signal mask; call it from the main thread of a process of its own.

    Args:
        options: how.
        argv: the command, at least one word.
        env: the environment it gets.
        clock: the start's clock; one that begins now if None.

    Returns:
        The command's exit code; 128 + n if signal n ended it; 126 or 127 if it could not be started.

    Raises:
        UsageError: the command line or the environment is wrong; nothing was started.
        IntegrityError: the checkpoint is not what somebody trusted has sealed; nothing was started.
    """
    process.hold_standard_descriptors()
    clock, console = clock or Clock(), Console(2, options.quiet)
    run = _Run(options, tuple(argv), env, clock, console, Weights(options, tuple(argv), env, console, clock))
    try:
        program = process.find_program(argv[0], env)
        return run.go(program)
    except CannotStart as error:
        run.console.warn(error.line())
        return error.exit_code


@dataclass
class _Run:
    options: RunOptions
    argv: tuple[str, ...]
    env: Mapping[str, str]
    clock: Clock
    console: Console
    weights: Weights
    steps: Steps = field(default_factory=Steps)
    gone: threading.Event = field(default_factory=threading.Event)
    report: StartReport | None = None
    report_failed: bool = False
    publishing: Deadline | None = None

    def go(self, program: str) -> int:
        process.block_signals()
        prepared = None
        try:
            self.weights.begin()
            started = self.weights.command()
            launch = self._recognise(started)
            prepared = self._prepare(Prepared(launch))
            for notice in launch.notices if self.options.cache else ():
                self.console.warn(notice)
            stop = process.pending_stop()
            if stop is not None:
                return 128 + stop  # it came before there was an engine to pass it on to
            return self._supervise(program, prepared, started)
        finally:
            self.weights.close()
            if prepared is not None and prepared.live is not None:
                prepared.live.close()
            process.unblock_signals()

    def _recognise(self, started: Started) -> Launch:
        try:
            return recognise(started.argv, started.key_env, os.getcwd(), engine=self.options.engine)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            self.console.warn(f"cold start: the command could not be understood: {_describe(error)}")
            return Launch(
                EngineInfo("generic", None), {}, relocatable=False, families=(), readiness=ExitReadiness(), ranks=1, log=GenericLog
            )

    def _prepare(self, prepared: Prepared) -> Prepared:
        """Everything before the spawn. Usage errors are raised; all else fails open."""
        if not self.options.cache or not prepared.launch.families:
            return prepared
        try:
            return self._restore(prepared)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            reason = _describe(error)
            self.console.warn(f"cold start: {reason}")
            return replace(prepared, search=Search(Lookup("off", reason), may_publish=False))

    def _restore(self, prepared: Prepared) -> Prepared:
        """Take the live folder, and put into it what the store has."""
        envelope, base = describe(prepared.launch, self.options, self.env)
        trust = trust_for(self.options, self.env)
        store = store_for(self.options, self.env)
        begun_s = self.clock.now_s()
        self.steps.note("envelope", 0.0, begun_s)
        prepared = claim_live(replace(prepared, envelope=envelope, store_url=store.url), base)
        if prepared.live is not None:
            writer = load_signer(self.env, key=self.options.signing_key) is not None
            prepared = self._restore_in_time(
                prepared,
                lambda deadline: look_up_and_restore(
                    prepared, store, trust, deadline=deadline, options=self.options, writer=writer
                ),
            )
            prepared = note_files(prepared)
        self.steps.note("restore", begun_s, self.clock.now_s())
        if self.options.store is None:
            self.console.note(f"no --store: using your own, {store.url}")
        search = prepared.search
        if search.lookup.state == "none" and search.pointer is None and search.may_publish:  # the first start of its kind
            self.console.note(f"cold start: {search.lookup.reason}")
        elif search.lookup.state != "restored":
            self.console.warn(f"cold start: {search.lookup.reason}")
        return prepared

    def _restore_in_time(self, prepared: Prepared, work: Callable[[Deadline], Prepared]) -> Prepared:
        """Do the work in a thread, and wait for it no longer than the deadline, nor past a signal that ends the start."""
        deadline = Deadline(self.options.restore_deadline_s, step="restore")
        results: list[Prepared] = []

        def run() -> None:
            try:
                results.append(work(deadline))
            except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
                results.append(replace(prepared, search=Search(Lookup("off", _describe(error)), may_publish=False)))

        thread = threading.Thread(target=run, name="glowplug-restore", daemon=True)
        if not begin(thread):
            return replace(prepared, search=Search(Lookup("off", none_left().line()), may_publish=False))
        pause_s = 0.005
        while thread.is_alive() and deadline.remaining_s and process.pending_stop() is None:
            thread.join(pause_s)
            pause_s = min(pause_s * 2, 0.1)
        deadline.cancel(f"the engine starts after {self.options.restore_deadline_s:g} s at the latest")
        thread.join(_POLL_S)  # a commit that was under way has ended by now
        if results:
            return results[0]
        reason = f"restore took longer than {self.options.restore_deadline_s:g} s (raise --restore-deadline, or look at the store)"
        return replace(prepared, search=Search(Lookup("none", reason), may_publish=False))

    def _supervise(self, program: str, prepared: Prepared, started: Started) -> int:
        """Spawn the engine and stay until it has ended."""
        log, lock = prepared.launch.log(), threading.Lock()

        def on_line(line: str) -> None:
            with lock:
                log.feed(line, self.clock.now_s())

        pumps = self._pumps(on_line)
        readiness = prepared.launch.readiness
        taken = isinstance(readiness, HttpReadiness) and is_taken(readiness.url)
        if isinstance(readiness, HttpReadiness) and taken:
            self.console.warn(
                f"another process answers {readiness.url}: when this engine is ready can't be told, nothing is published"
            )
        begun_s = self.clock.now_s()
        try:
            child = Child.spawn(
                program,
                started.argv,
                prepared.environment(started.env),
                stdout=pumps[0].inlet if pumps else 1,
                stderr=pumps[-1].inlet if pumps else 2,
                group=not os.isatty(0),
            )
        finally:
            for pump in pumps:
                pump.release()
        spawned_s = self.clock.now_s()
        self.steps.note("spawn", begun_s, spawned_s)
        self.weights.engine_runs()

        def conclude(ready_s: float, exit_code: int | None) -> None:
            for pump in pumps:
                pump.stop_reading_lines()
            try:
                self._conclude(prepared, log, spawned_s=spawned_s, ready_s=ready_s, exit_code=exit_code)
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine serves on, whatever became of the report
                self.console.warn(f"no report and no capture: {_describe(error)}")

        watcher = self._watch(prepared.launch, conclude, taken=taken)
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
                self.console.warn(f"the engine's output is not read, and the report will say little: {none_left().line()}")
                return []
            pumps.append(pump)
        return pumps

    def _watch(self, launch: Launch, conclude: Callable[[float, None], None], *, taken: bool) -> threading.Thread | None:
        """Wait for readiness in a thread, and then conclude there. None for a command that is done when it exits."""
        if not isinstance(launch.readiness, HttpReadiness) or taken:
            return None
        url = launch.readiness.url

        def watch() -> None:
            ready_s = wait_until_ready(url, self.gone, self.clock.now_s, timeout_s=self.options.ready_timeout_s)
            if ready_s is not None:
                conclude(ready_s, None)
            elif not self.gone.is_set():
                self.console.warn(
                    f"not ready after {self.options.ready_timeout_s:g} s, by {url}: nothing will be published; the engine goes on"
                )

        thread = threading.Thread(target=watch, name="glowplug-watch", daemon=True)
        if not begin(thread):
            self.console.warn(f"when the engine is ready is not watched, nothing will be published: {none_left().line()}")
            return None
        return thread

    def _finish(
        self, exit_code: int, pumps: list[Pump], watcher: threading.Thread | None, conclude: Callable[[float, int], None]
    ) -> None:
        """The engine has ended: pass on its last words, call a capture off, or, for a plain command, begin with it."""
        ended_s = self.clock.now_s()
        self.gone.set()
        self.weights.close()
        if self.publishing is not None:
            self.publishing.cancel(_ENGINE_GONE)
        grace = Deadline(_SHUTDOWN_GRACE_S, step="shutdown")  # for all together: a child that the engine left may hold the pipes
        for pump in pumps:
            pump.join(grace.remaining_s)
        if watcher is not None:
            watcher.join(grace.remaining_s)
        if self.report is None:  # a plain command, or an engine that never became ready
            self._conclude_in_background(lambda: conclude(ended_s, exit_code))
        elif self.report.exit_code is None:
            self._keep(replace(self.report, exit_code=exit_code))
        if self.report is not None and self.report.publish is None:  # a store that hangs: nobody waits for it any longer
            published = PublishReport("cancelled", "the store had not answered yet")
            self._tell(published)
            self._keep(replace(self.report, publish=published))
        for pump in pumps:
            pump.drain(process.stop_came)
            if pump.error is not None and not isinstance(pump.error, BrokenPipeError):  # a reader that has gone knows that itself
                self.console.warn(f"the engine's output could not be written: {pump.error.strerror}; the rest of it is lost")

    def _conclude(self, prepared: Prepared, log: EngineLog, *, spawned_s: float, ready_s: float, exit_code: int | None) -> None:
        """Report, then publish. For a served engine at ready (``exit_code`` is None), otherwise when the command has ended."""
        report = build_report(prepared, self.clock, self.steps, log, spawned_s=spawned_s, ready_s=ready_s)
        report = replace(report, exit_code=exit_code, weights=self.weights.conclude())
        ended_early = exit_code is not None and (exit_code != 0 or isinstance(prepared.launch.readiness, HttpReadiness))
        self._keep(report)
        if not ended_early:
            self._show(report)
        if ended_early:
            published = PublishReport("skipped", f"the command ended with exit code {exit_code}")
        else:
            self.publishing = Deadline(self.options.publish_deadline_s, step="publish")
            if exit_code is None and self.gone.is_set():
                self.publishing.cancel(_ENGINE_GONE)
            from glowplug.run.publishing import publish  # noqa: PLC0415  not while the engine waits to be spawned

            published = publish(prepared, report, self.options, self.env, self.console, deadline=self.publishing)
            if published.reason != report.reason:  # that has been said
                self._tell(published)
        self._keep(replace(self.report or report, publish=published))

    def _conclude_in_background(self, conclude: Callable[[], None]) -> None:
        """Report and publish after the engine's end, for no longer than the deadline or a signal that means "end"."""
        thread = threading.Thread(target=conclude, name="glowplug-conclude", daemon=True)
        if not begin(thread):
            self.console.warn(f"no report and no capture: {none_left().line()}")
            return
        interrupted = False
        grace: Deadline | None = None
        while thread.is_alive() and (grace is None or grace.remaining_s):
            thread.join(_POLL_S)
            interrupted |= process.stop_came()
            if self.publishing is None:
                continue
            if interrupted:
                self.publishing.cancel("interrupted")
            if grace is None and (interrupted or not self.publishing.remaining_s):
                grace = Deadline(_SHUTDOWN_GRACE_S, step="shutdown")

    def _keep(self, report: StartReport) -> None:
        self.report = report
        if self.options.report is None or self.report_failed:
            return
        try:
            write_report(self.options.report, report)
        except LocalError as error:
            self.report_failed = True  # said once
            self.console.warn(error.line())

    def _show(self, report: StartReport) -> None:
        if self.options.json:
            self.console.block(json.dumps(report.to_json()))
        elif sys.stderr is not None:  # None where it was closed before we began
            self.console.block(render(report, width=terminal_width(2), color=os.isatty(2), glyphs=glyphs_for(sys.stderr)))

    def _tell(self, published: PublishReport) -> None:
        if published.state == "published":
            self.console.note(
                f"published generation {(published.generation or '')[:12]} in {format_seconds(published.seconds)}:"
                f" {count(published.files, 'file')}, {format_bytes(published.bytes)},"
                f" in a pack of {format_bytes(published.pack_bytes)}"
            )
        elif published.state == "failed":
            self.console.warn(f"nothing was published: {published.reason}")
        elif published.state != "nothing new":
            self.console.note(f"nothing was published: {published.reason}")


def _wait(child: Child) -> int:
    """Pass signals on until the engine has ended; its exit code."""
    while True:
        exit_code = child.reap()
        if exit_code is not None:
            return exit_code
        caught = process.next_signal()
        if caught is not None and caught.number != signal.SIGCHLD:
            child.send(caught)


def _describe(error: Exception) -> str:
    return error.line() if isinstance(error, GlowplugError) else f"internal error, {type(error).__name__}: {error}"
