"""How fast one object can be read, with the fetch of a start and its settings: for three seconds or 256 MB, whichever is first.

A short reading: it begins with a few requests at once and finds out how many more pay, so a very fast network is not filled by it.
``glowplug weights bench`` takes the time to do that. Memory: 128 MiB, a quarter of what is free at most.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug.doctor.node.background import Background
from glowplug.doctor.node.facts import Failure, Speed
from glowplug.doctor.node.failures import failure_of
from glowplug.errors import GlowplugError
from glowplug.units import MIB
from glowplug.weights.base import WeightFile
from glowplug.weights.fetch.ferry import cut, ferry
from glowplug.weights.fetch.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.weights.base import Entry, Source
    from glowplug.weights.fetch.ferry import Piece

MOST_BYTES = 256_000_000
MOST_SECONDS = 3.0
_PATIENCE_S = 3.0
"""Beyond that, for a piece that does not come."""
_RING_BYTES = 128 * MIB
_LEAST_RING_BYTES = 32 * MIB


class _EnoughError(Exception):
    """The time is over."""


class Reading:
    """One reading of one object.

    Args:
        source: where it lies; closed at the end.
        entry: the object.
        env: settings of the fetch.
        free_bytes: memory that is free; None if unknown.

    Attributes:
        failure: why it ended too soon; None if it didn't.
    """

    def __init__(self, source: Source, entry: Entry, *, env: Mapping[str, str], free_bytes: int | None) -> None:
        self.failure: Failure | None = None
        self._source = source
        self._entry = entry
        self._env = env
        self._ring_bytes = _RING_BYTES if free_bytes is None else max(_LEAST_RING_BYTES, min(_RING_BYTES, free_bytes // 4))
        self._lock = threading.Lock()
        self._begun_s = self._last_s = time.monotonic()
        self._bytes = 0

    def run(self) -> Speed:
        """Read. Blocks for a few seconds."""
        self._begun_s = self._last_s = time.monotonic()
        if not Background(self._read).ended(MOST_SECONDS + _PATIENCE_S):
            self.failure = Failure("unreachable", f"{self._name}: nothing more came for {_PATIENCE_S:g} s")
        self._source.close()
        with self._lock:
            return Speed(self._name, self._bytes, self._last_s - self._begun_s)

    @property
    def _name(self) -> str:
        return self._source.name_of(self._entry)

    def _read(self) -> None:
        file = WeightFile(self._entry.name, self._entry.size_bytes, self._entry.etag, 0, "")
        pieces = list(cut(0, 0, min(self._entry.size_bytes, MOST_BYTES)))
        try:
            settings = FetchSettings.from_env(self._env)
            ferry(self._source, [file], pieces, self._take, settings=settings, ring_bytes=self._ring_bytes)
        except _EnoughError:
            return
        except GlowplugError as error:
            self.failure = failure_of(error)

    def _take(self, piece: Piece, _view: memoryview) -> None:
        with self._lock:
            self._bytes += piece.end - piece.start
            self._last_s = time.monotonic()
            if self._last_s - self._begun_s > MOST_SECONDS:
                raise _EnoughError
