"""After readiness, or after the end: report, publish, and tell the user. Runs beside a serving engine and never disturbs it."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.engines.base import HttpReadiness
from glowplug.errors import LocalError
from glowplug.run import process
from glowplug.run.console import terminal_width
from glowplug.run.reporting import build_report
from glowplug.threads import begin, none_left
from glowplug.timeline.render import glyphs_for, render
from glowplug.timeline.report import PublishReport
from glowplug.timeline.write import write_report
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.engines.base import EngineLog
    from glowplug.run.deltas import Deltas
    from glowplug.run.publishing import Publications
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.timeline.report import StartReport

SHUTDOWN_GRACE_S = 2.0  # for the last output, and for a capture to notice that it was called off
_POLL_S = 0.1
_ENGINE_GONE = "the engine has ended"


@dataclass
class Conclusion:
    """What becomes of a start once its engine is ready or has ended.

    Args:
        start: what all steps share.
        speak: called once the engine is ready, or the command has ended well, after the report and before the publication.
    """

    start: Start
    speak: Callable[[Prepared, StartReport, EngineLog], None] = lambda _prepared, _report, _log: None
    gone: bool = False
    report: StartReport | None = None
    report_failed: bool = False
    publishing: Deadline | None = None
    metrics_failed: bool = False
    deltas: Deltas | None = None

    def conclude(self, prepared: Prepared, log: EngineLog, *, spawned_s: float, ready_s: float, exit_code: int | None) -> None:
        """Report, then publish. For a served engine at ready (``exit_code`` is None), otherwise when the command has ended."""
        prepared = prepared.settled()
        report = build_report(prepared, self.start.clock, self.start.steps, log, spawned_s=spawned_s, ready_s=ready_s)
        report = replace(report, exit_code=exit_code, weights=self.start.weights.conclude())
        ended_early = exit_code is not None and (exit_code != 0 or isinstance(prepared.launch.readiness, HttpReadiness))
        self._keep(report)
        if not ended_early:
            self._show(report)
        if ended_early:
            published = PublishReport("skipped", f"the command ended with exit code {exit_code}")
        else:
            self.publishing = Deadline(self.start.options.publish_deadline_s, step="publish")
            if exit_code is None and self.gone:
                self.publishing.cancel(_ENGINE_GONE)
            self.speak(prepared, report, log)
            from glowplug.run.publishing import Publications  # noqa: PLC0415  not while the engine waits to be spawned

            publications = Publications(self.start, prepared, report)
            published = publications.at_ready(self.publishing)
            said = {report.reason, prepared.identity.problem if prepared.identity is not None else ""}
            if published.reason not in said - {""}:
                self._tell(published)
            if exit_code is None:
                self._watch(publications)
        self._keep(replace(self.report or report, publish=published))
        if prepared.flight is not None:
            prepared.flight.finish(published, exit_code=exit_code if ended_early else None)

    def engine_gone(self) -> None:
        """The engine has ended; a capture under way is called off."""
        self.gone = True
        if self.publishing is not None:
            self.publishing.cancel(_ENGINE_GONE)
        if self.deltas is not None:
            self.deltas.stop(_ENGINE_GONE)

    def _watch(self, publications: Publications) -> None:
        """Publish what the engine compiles from now on, for as long as it serves."""
        from glowplug.run.deltas import Deltas  # noqa: PLC0415  as publishing

        self.deltas = Deltas(publications)
        if not self.gone:
            self.deltas.begin()
        if self.gone:  # meanwhile
            self.deltas.stop(_ENGINE_GONE)

    def finish(self, exit_code: int, conclude: Callable[[], None]) -> None:
        """Complete the report after the engine's end. ``conclude`` is called if nothing has been concluded yet."""
        if self.report is None:  # a plain command, or an engine that never became ready
            self._conclude_in_background(conclude)
        elif self.report.exit_code is None:
            self._keep(replace(self.report, exit_code=exit_code))
        if self.report is not None and self.report.publish is None:  # a store that hangs: nobody waits for it any longer
            published = PublishReport("cancelled", "the store had not answered yet")
            self._tell(published)
            self._keep(replace(self.report, publish=published))
        if self.deltas is not None:
            self.deltas.join(SHUTDOWN_GRACE_S)

    def _conclude_in_background(self, conclude: Callable[[], None]) -> None:
        """Report and publish after the engine's end, for no longer than the deadline or a signal that means "end"."""
        thread = threading.Thread(target=conclude, name="glowplug-conclude", daemon=True)
        if not begin(thread):
            self.start.console.warn(f"no report and no capture: {none_left().line()}")
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
                grace = Deadline(SHUTDOWN_GRACE_S, step="shutdown")

    def _keep(self, report: StartReport) -> None:
        report = replace(report, events=tuple(self.start.events))
        self.report = report
        self._measure(report)
        if self.start.options.report is None or self.report_failed:
            return
        try:
            write_report(self.start.options.report, report)
        except LocalError as error:
            self.report_failed = True  # said once
            self.start.console.warn(error.line())

    def _measure(self, report: StartReport) -> None:
        if self.start.options.metrics is None or self.metrics_failed:
            return
        from glowplug.run.metrics import write_metrics  # noqa: PLC0415  not while the engine waits to be spawned

        try:
            write_metrics(self.start.options.metrics, report)
        except LocalError as error:
            self.metrics_failed = True  # said once
            self.start.console.warn(error.line())

    def _show(self, report: StartReport) -> None:
        if self.start.options.json:
            self.start.console.block(json.dumps(report.to_json(brief=True)))
        elif sys.stderr is not None:  # None where it was closed before we began
            self.start.console.block(render(report, width=terminal_width(2), color=os.isatty(2), glyphs=glyphs_for(sys.stderr)))

    def _tell(self, published: PublishReport) -> None:
        if published.state == "published":
            self.start.console.note(
                f"published generation {(published.generation or '')[:12]} in {format_seconds(published.seconds)}:"
                f" {count(published.files, 'file')}, {format_bytes(published.bytes)},"
                f" in a pack of {format_bytes(published.pack_bytes)}"
            )
        elif published.state == "failed":
            self.start.console.warn(f"nothing was published: {published.reason}")
        elif published.state != "nothing new":
            self.start.console.note(f"nothing was published: {published.reason}")
