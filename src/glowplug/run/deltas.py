"""What a serving engine compiles after its start: shapes that nobody had asked for before.

A thread looks now and then, at names and metadata alone, whether compiled files have appeared that the newest known generation has
not. Only then is the store asked: in a fleet some other replica has often published the same already, and then nothing is done. It
looks no more often than ``--publish-interval``, each replica at moments of its own, so that a fleet in which every replica compiles
the same shape publishes it once. Where it did publish, the new generation holds the old one (``cache.merge``).

Nothing here disturbs the engine, and nothing is published at the engine's end: a publication under way is called off.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.cache.tree import scan
from glowplug.run.publishing import why_never
from glowplug.run.start import describe_error
from glowplug.threads import begin
from glowplug.units import count, format_seconds

if TYPE_CHECKING:
    from glowplug.run.publishing import Publications

_SPREAD = 0.5
"""The wait is the interval and up to so much of it more. Replicas that were started together must not look together: the first to
publish should be done before most of the others ask."""


class Deltas:
    """The thread that looks for what was compiled since.

    Args:
        publications: the engine's, of which readiness was the first.
    """

    def __init__(self, publications: Publications) -> None:
        self._publications = publications
        self._start = publications.start
        self._gone = threading.Event()
        self._deadline: Deadline | None = None
        self._thread: threading.Thread | None = None
        self._told = ""

    def begin(self) -> None:
        """Look from now on, if this start may publish at all. Where no thread can be had, the next start publishes."""
        publications, options = self._publications, self._start.options
        if not options.publish_interval_s or why_never(publications.prepared, publications.report, publish=options.publish):
            return
        thread = threading.Thread(target=self._run, name="glowplug-deltas", daemon=True)
        if begin(thread):
            self._thread = thread

    def stop(self, reason: str) -> None:
        """Look no more, and call off what is under way."""
        self._gone.set()
        if self._deadline is not None:
            self._deadline.cancel(reason)

    def join(self, timeout_s: float | None) -> None:
        """Wait until it has stopped, and has removed its temporary files."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        interval_s = self._start.options.publish_interval_s
        while not self._gone.wait(interval_s * random.uniform(1, 1 + _SPREAD)):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine serves on
                self._tell(f"nothing more is published: {describe_error(error)}")
                return

    def _look(self) -> None:
        new = self._new()
        if not new:
            return
        self._deadline = Deadline(self._start.options.publish_deadline_s, step="publish")
        if self._gone.is_set():
            return
        published = self._publications.publish(self._deadline)
        if published.state == "published":
            self._told = ""
            self._start.console.note(
                f"published generation {(published.generation or '')[:12]} in {format_seconds(published.seconds)}:"
                f" {count(new, 'compiled file')} more than the start had"
            )
        elif published.state in {"failed", "skipped"}:
            self._tell(
                f"{count(new, 'compiled file')} that the engine added since its start could not be published: {published.reason}"
            )

    def _new(self) -> int:
        """How many compiled files the newest known generation has not."""
        prepared = self._publications.prepared
        assert prepared.live is not None  # noqa: S101  begin() has looked
        try:
            files = scan(prepared.live.path, prepared.launch.families)
        except OSError:
            return 0  # the next look may succeed; a folder that stays unreadable was said to be at readiness
        return sum(file.compiled and file.path not in self._publications.held for file in files)

    def _tell(self, line: str) -> None:
        if line != self._told:  # the same every quarter of an hour helps nobody
            self._told = line
            self._start.console.warn(line)
