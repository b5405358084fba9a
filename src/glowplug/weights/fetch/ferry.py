"""Bytes of files, carried through a ring of memory to a function: what sealing, checking and pulling have in common.

A load puts tensors where an engine finds them; these three need whole files, in pieces, and keep nothing. So the pieces are laid
out as a line of their own and the fetcher fills the ring as for any load, while a few threads hash or write what has arrived.

Memory: the ring, and nothing else that grows. Pieces are handed out in their order, several at a time.
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from glowplug.units import MIB
from glowplug.weights.base import Checkpoint, FetchStats, Plan, Range, WeightFile
from glowplug.weights.fetch.crew import each
from glowplug.weights.fetch.fetcher import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from glowplug.weights.base import Source
    from glowplug.weights.fetch.settings import FetchSettings

RING_BYTES = 256 * MIB
"""Where the user says nothing: 32 requests of 8 MiB."""
PIECE_BYTES = 8 * MIB
_LEAST_PIECES = 4  # in the ring, so that fetching and taking overlap
_MOST_THREADS = 4
_LINGER_S = 10.0  # for pieces that are being taken when Ctrl-C comes: milliseconds, unless a disk hangs


class Piece(NamedTuple):
    """Bytes of one file that are taken at once."""

    file: int
    """Index into the files."""
    start: int
    end: int


def cut(file: int, start: int, end: int, size_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Pieces of one size, the last may be shorter; none of an empty stretch."""
    for begin in range(start, end, size_bytes):
        yield Piece(file, begin, min(begin + size_bytes, end))


def ferry(
    source: Source,
    files: Sequence[WeightFile],
    pieces: Sequence[Piece],
    take: Callable[[Piece, memoryview], None],
    *,
    settings: FetchSettings,
    ring_bytes: int = RING_BYTES,
    memory: memoryview | None = None,
) -> FetchStats:
    """Fetch pieces and hand each over once. Blocks until the last was taken.

    Args:
        source: where the files lie.
        files: those that the pieces are of; only name, size and ETag count.
        pieces: in the order in which they are fetched.
        take: called with a piece and its bytes, in several threads at once; the bytes are gone when it returns.
        settings: of the fetch.
        ring_bytes: memory to use; raised to what four pieces need.
        memory: to use instead, if it is large enough: pages that were written before cost nothing to write again.

    Raises:
        GlowplugError: a piece could not be fetched.
        BaseException: what ``take`` raised; nothing further is taken then.
    """
    if not pieces:
        return FetchStats()
    plan, positions = _lay_out(source, files, pieces, settings, ring_bytes)
    ring = memory if memory is not None and memory.nbytes >= plan.ring_bytes else memoryview(mmap.mmap(-1, plan.ring_bytes))
    fetcher = Fetcher(source, plan, ring, settings)
    taken = _Taken(positions, fetcher)

    def carry(number: int) -> None:
        piece, position = pieces[number], positions[number]
        fetcher.wait(position + piece.end - piece.start)
        offset = position % plan.ring_bytes
        take(piece, ring[offset : offset + piece.end - piece.start])
        taken.add(number)

    try:
        fetcher.start()
        threads = min(_MOST_THREADS, max(2, len(os.sched_getaffinity(0))))
        each(carry, range(len(pieces)), threads=threads, name="glowplug-ferry", stop=fetcher.close, linger_s=_LINGER_S)
        return fetcher.stats()
    finally:
        fetcher.close()


class _Taken:
    """How far all pieces are taken, whatever the order in which they end."""

    def __init__(self, positions: Sequence[int], fetcher: Fetcher) -> None:
        self._positions = positions
        self._fetcher = fetcher
        self._ended: set[int] = set()
        self._first = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self._ended.add(number)
            while self._first in self._ended:
                self._ended.remove(self._first)
                self._first += 1
            if self._first < len(self._positions):
                self._fetcher.consumed(self._positions[self._first])


def _lay_out(
    source: Source, files: Sequence[WeightFile], pieces: Sequence[Piece], settings: FetchSettings, ring_bytes: int
) -> tuple[Plan, list[int]]:
    """The plan, and each piece's position. No piece crosses the ring's end."""
    page = mmap.PAGESIZE
    largest = max(piece.end - piece.start for piece in pieces) + page
    total = sum(-(-(piece.end - piece.start + page) // page) * page for piece in pieces)
    ring = min(total, max(ring_bytes, _LEAST_PIECES * largest)) // page * page
    chunk = settings.chunk_for(local=source.is_local)
    positions: list[int] = []
    ranges: list[Range] = []
    end = 0
    for piece in pieces:
        size = piece.end - piece.start
        # Aligned as in the file, so that a disk can be read past the page cache.
        position = -(-end // page) * page + piece.start % page
        if position % ring + size > ring:
            position = -(-position // ring) * ring + piece.start % page
        positions.append(position)
        ranges += [
            Range(piece.file, begin, min(begin + chunk, piece.end), position + begin - piece.start)
            for begin in range(piece.start, piece.end, chunk)
        ]
        end = position + size
    checkpoint = Checkpoint(source.uri, tuple(files), ())
    return Plan(checkpoint, (), tuple(ranges), ring, end), positions
