"""A local checkpoint, read into the page cache while the engine imports.

The engine maps its weight files and reads them page by page, later and one after the other; a disk gives more to several readers,
and earlier. Bounded by the memory that is left beside the engine, so that it pushes out nothing; ends when the engine is ready.
Nothing here can fail a start.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from glowplug.threads import begin
from glowplug.timeline.report import WeightsReport

if TYPE_CHECKING:
    from glowplug.engines.base import WeightsRequest
    from glowplug.run.console import Console
    from glowplug.weights.sources.page_cache import WarmStats

_IN_MEMORY = frozenset(("tmpfs", "ramfs", "hugetlbfs"))
_GRACE_S = 1.0


class Warming:
    """The reading, in a thread of its own."""

    def __init__(self, request: WeightsRequest, console: Console) -> None:
        self._request = request
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stats: WarmStats | None = None

    def start(self) -> None:
        """Begin. Returns at once."""
        if self._stop.is_set() or self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="glowplug-warm", daemon=True)
        if begin(thread):  # where there is none to be had, the engine reads its files itself
            self._thread = thread

    def stop(self) -> None:
        """Stop within some milliseconds of reading. May be called more than once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_GRACE_S)

    def report(self) -> WeightsReport | None:
        """What was read; None if nothing was, because it lay in memory or could not be read."""
        stats = self._stats
        if stats is None or not stats.bytes_read:
            return None
        return WeightsReport(uri=self._request.uri, mode="page cache", bytes=stats.bytes_read, seconds=stats.seconds)

    def _run(self) -> None:
        try:
            self._warm()
        except Exception as error:  # noqa: BLE001  fail-open boundary: the engine reads its files itself
            self._console.note(f"{self._request.uri} is not read ahead: {type(error).__name__}: {error}")

    def _warm(self) -> None:
        from glowplug.errors import GlowplugError  # noqa: PLC0415  after the engine was spawned, as the rest
        from glowplug.weights.buffer.memory import MARGIN_BYTES, find_room  # noqa: PLC0415  the same
        from glowplug.weights.checkpoint.opening import open_checkpoint  # noqa: PLC0415  the same
        from glowplug.weights.sources.local import LocalSource  # noqa: PLC0415  the same
        from glowplug.weights.sources.page_cache import warm  # noqa: PLC0415  the same

        source = LocalSource(self._request.uri)
        try:
            checkpoint = open_checkpoint(source)
        except GlowplugError:
            return  # no safetensors, or none that can be read: the engine says it better
        if lies_in_memory(source.name_of(checkpoint.files[0])):
            return
        free_bytes = find_room().free_bytes
        most_bytes = None
        if free_bytes is not None:
            most_bytes = max(0, free_bytes - self._request.engine_bytes(checkpoint.size_bytes) - MARGIN_BYTES)
        self._stats = warm(source, checkpoint, stop=self._stop, most_bytes=most_bytes)


def lies_in_memory(path: str, *, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a file's file system keeps its files in memory alone, so that there is nothing to read ahead."""
    try:
        device = os.stat(path).st_dev
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields = line.split()
                if fields[2] == f"{os.major(device)}:{os.minor(device)}" and "-" in fields:
                    return fields[fields.index("-") + 1] in _IN_MEMORY
    except (OSError, IndexError):
        return False
    return False
