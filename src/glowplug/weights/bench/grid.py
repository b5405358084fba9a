"""Which settings suit this machine and this store: throughput against requests at once and the size of a request.

A grid of settings, and beside it the default that finds the number of requests by itself. All cells take turns, round after round,
so that a network that is slower for a minute slows all of them alike. Each cell reads other bytes than the one before, and so many
that every connection has at least two requests to do. Counted are bytes that arrive in memory that was written before: no tensor is
made, nothing is copied to a device.

Memory: ``MOST_BYTES``. Nothing is written anywhere.
"""

from __future__ import annotations

import mmap
import statistics
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import UsageError
from glowplug.units import MIB, format_bytes
from glowplug.weights.fetch.ferry import Piece, ferry
from glowplug.weights.fetch.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glowplug.weights.base import Checkpoint, Source

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS = (4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB)
MOST_BYTES = 512 * MIB
"""Of a cell's reading, and of the memory that it is read into."""
_LEAST_BYTES = 16 * MIB
_ROUNDS = 3
_PATIENCE = 4.0
"""A cell that needs so many times its share of the time is left out."""
GOOD_ENOUGH = 0.9
"""Of the best: less of a difference is noise, since the best of many is also the luckiest."""
_GB = 1e9


class Setting(NamedTuple):
    """What is tried."""

    concurrency: int | None
    """None: found while it runs."""
    chunk_bytes: int


@dataclass(slots=True)
class Cell:
    """One setting and its results, a number for each round.

    Attributes:
        setting: what was tried.
        gb_per_s: throughput, GB (10**9 bytes) a second.
        cpu_s_per_gb: processor time for each GB.
        settled: requests at once at the end.
    """

    setting: Setting
    gb_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)
    settled: int = 0

    @property
    def median(self) -> float:
        """Of the throughput; 0 where nothing was measured."""
        return statistics.median(self.gb_per_s) if self.gb_per_s else 0.0

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between these lies the throughput of the middle half of the rounds; of one round, that one."""
        if len(self.gb_per_s) < 2:
            return self.median, self.median
        first, _, third = statistics.quantiles(self.gb_per_s, n=4, method="inclusive")
        return first, third


@dataclass(frozen=True, slots=True)
class Bench:
    """All cells.

    Attributes:
        cells: those that were measured.
        cell_bytes: that a reading of a cell fetched at least.
        default_chunk_bytes: what is used where nothing is set.
        rounds: complete ones.
        seconds: all in all.
    """

    cells: tuple[Cell, ...]
    cell_bytes: int
    default_chunk_bytes: int
    rounds: int
    seconds: float

    @property
    def best(self) -> Cell:
        """The fastest."""
        return max(self.cells, key=lambda cell: cell.median)

    @property
    def chosen(self) -> Cell:
        """What to use: the default if it is within 10 % of the best; else another size of it; else the fewest requests that are."""
        enough = GOOD_ENOUGH * max(cell.median for cell in self.cells)
        good = [cell for cell in self.cells if cell.median >= enough]

        def burden(cell: Cell) -> tuple[int, bool, float]:
            number, chunk = cell.setting
            return number or 0, chunk != self.default_chunk_bytes, chunk if number else -cell.median

        return min(good, key=burden)

    @property
    def is_default(self) -> bool:
        """Nothing need be set."""
        return self.chosen.setting == Setting(None, self.default_chunk_bytes)

    @property
    def spread(self) -> float:
        """How far the middle half of the chosen cell's rounds lies apart, as a share of its median."""
        low, high = self.chosen.middle_half
        return (high - low) / self.chosen.median if self.chosen.median else 0.0


def bench(
    source: Source,
    checkpoint: Checkpoint,
    *,
    settings: FetchSettings,
    seconds: float = 60.0,
    limit_bytes: int = MOST_BYTES,
    concurrencies: Sequence[int] = CONCURRENCIES,
    chunks: Sequence[int] = CHUNKS,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Try all settings. Blocks for about ``seconds``, for one whole round at least.

    Args:
        source: where from.
        checkpoint: as it was opened there; its bytes are read over and over.
        settings: what is not tried comes from here.
        seconds: for all rounds together. Decides how much a cell reads.
        limit_bytes: most bytes of a cell's reading.
        concurrencies: requests at once to try.
        chunks: sizes of a request to try.
        progress: told what is tried next.

    Raises:
        UsageError: there is nothing to read.
        RemoteError: the source did not deliver.
    """
    begun = time.monotonic()
    if min(limit_bytes, checkpoint.size_bytes) <= 0:
        hint = "name a checkpoint with weights, and a limit above 0"
        raise UsageError(f"{source.uri} holds no bytes to read: nothing to measure", object=source.uri, hint=hint)
    limit_bytes = min(limit_bytes, MOST_BYTES, checkpoint.size_bytes)
    reader = _Reader(source, checkpoint, settings, max(limit_bytes, *chunks))
    tell = progress or _silent
    tell("a first look")
    default = FetchSettings().chunk_for(local=source.is_local)
    speed = reader.read(Setting(None, default), min(limit_bytes, 4 * _LEAST_BYTES)).gb_per_s * _GB
    grid = [Setting(number, chunk) for chunk in chunks for number in (*concurrencies, None)]
    share_s = max(0.05, (seconds - (time.monotonic() - begun)) / (len(grid) * _ROUNDS))
    cell_bytes = int(min(limit_bytes, max(_LEAST_BYTES, speed * share_s)))
    # One request at a time needs no company, and the automatic ones take what they get.
    most_bytes = min(limit_bytes, _PATIENCE * speed * share_s)
    cells = [Cell(setting) for setting in grid if (setting.concurrency or 1) == 1 or _needed(setting) <= most_bytes]
    rounds = 0
    while rounds == 0 or time.monotonic() - begun + (time.monotonic() - begun) / rounds < seconds:
        for number, cell in enumerate(cells, 1):
            tell(f"round {rounds + 1}, setting {number} of {len(cells)}: {describe(cell.setting)}")
            reading = reader.read(cell.setting, max(cell_bytes, min(_needed(cell.setting), limit_bytes)))
            cell.gb_per_s.append(reading.gb_per_s)
            cell.cpu_s_per_gb.append(reading.cpu_s_per_gb)
            cell.settled = reading.settled
        rounds += 1
    return Bench(tuple(cells), cell_bytes, default, rounds, time.monotonic() - begun)


def describe(setting: Setting) -> str:
    """A setting in a few words: ``16 requests of 8.0 MiB``."""
    number = "requests found by itself," if setting.concurrency is None else f"{setting.concurrency} at once of"
    return f"{number} {format_bytes(setting.chunk_bytes)}"


def _needed(setting: Setting) -> int:
    """Bytes with which each connection has two requests to do."""
    return 2 * (setting.concurrency or 1) * setting.chunk_bytes


class _Reading(NamedTuple):
    gb_per_s: float
    cpu_s_per_gb: float
    settled: int


class _Reader:
    """Reads stretches of the checkpoint, each time the next ones."""

    def __init__(self, source: Source, checkpoint: Checkpoint, settings: FetchSettings, memory_bytes: int) -> None:
        self._source = source
        self._files = checkpoint.files
        self._settings = settings
        # A piece of the largest size and a page beside it must fit four times.
        self._memory = memoryview(mmap.mmap(-1, memory_bytes + 8 * mmap.PAGESIZE))
        self._file, self._offset = 0, 0

    def read(self, setting: Setting, size_bytes: int) -> _Reading:
        pieces = self._next(setting.chunk_bytes, size_bytes)
        settings = replace(self._settings, concurrency=setting.concurrency, chunk_bytes=setting.chunk_bytes)
        begun_s, cpu_s = time.monotonic(), time.process_time()
        stats = ferry(
            self._source, self._files, pieces, _drop, settings=settings, ring_bytes=self._memory.nbytes, memory=self._memory
        )
        seconds, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        gb = sum(piece.end - piece.start for piece in pieces) / _GB
        return _Reading(gb / seconds if seconds else 0.0, cpu_s / gb if gb else 0.0, stats.concurrency)

    def _next(self, chunk: int, size_bytes: int) -> list[Piece]:
        pieces: list[Piece] = []
        while size_bytes > 0:
            size = min(chunk, size_bytes, self._files[self._file].size_bytes - self._offset)
            if size > 0:
                pieces.append(Piece(self._file, self._offset, self._offset + size))
            self._offset += max(size, 0)
            size_bytes -= max(size, 0)
            if self._offset >= self._files[self._file].size_bytes:
                self._file, self._offset = (self._file + 1) % len(self._files), 0
        return pieces


def _drop(_piece: Piece, _view: memoryview) -> None: ...


def _silent(_: str) -> None: ...
