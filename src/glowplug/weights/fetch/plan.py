"""What a load reads, in which requests, and where each byte goes: a checkpoint laid out on the line that ``base`` describes.

Everything is decided before the first byte moves, from the headers alone, so that fetching is bookkeeping and a load that could
not end is refused by arithmetic instead of by a hang. Pure: no file is opened, no memory is taken.

What makes any window work: a range never crosses the ring's end, and a tensor neither. So the ranges of the tensor that is waited
for, and all ranges before them, lie in one turn of the ring, beside nothing that is still needed. Sealed blocks are the exception:
a block may begin in one turn and end in the next, and all of it must be there before any of it is handed out. ``_least_ring``
says how large the ring must be for that.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.units import KIB
from glowplug.weights.base import ALIGNMENT_BYTES, Placed, Plan, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from glowplug.weights.base import Checkpoint, TensorInfo

GAP_BYTES = 256 * KIB
"""Unwanted bytes between two wanted tensors are read along up to this many: another request costs more than they do."""
_LEAST_RANGES = 8  # that a window should hold, so that fetching and reading overlap
_LEAST_CHUNK_BYTES = 256 * KIB
_TRIES = 8
_PAGE_BYTES = mmap.PAGESIZE


def make_plan(
    checkpoint: Checkpoint,
    *,
    chunk_bytes: int,
    memory_bytes: int | None = None,
    wanted: Callable[[TensorInfo], bool] | None = None,
    block_bytes: int | None = None,
) -> Plan:
    """Lay a checkpoint out in memory and cut it into requests.

    Tensors keep the order of ``checkpoint.tensors``. Takes about 1 µs a tensor and a range.

    Args:
        checkpoint: what to load.
        chunk_bytes: largest range. Ranges are cut at multiples of it, counted from each file's ``data_start``. With ``block_bytes``
            it becomes a multiple or a divisor of that, and a small window makes it smaller.
        memory_bytes: size of the ring. Rounded down to whole pages, raised to what the load needs at least (the largest tensor;
            with ``block_bytes`` one block more, and in rare layouts up to the two largest), and ignored if all fits into it.
            None: all.
        wanted: which tensors; None: all. What lies between two wanted ones is read along up to ``GAP_BYTES``.
        block_bytes: of sealed digests. Whole blocks are read then, also where a part of one was not wanted.
    """
    stretches = list(_stretches(checkpoint, wanted, block_bytes))
    chunk = _rounded_chunk(chunk_bytes, block_bytes)
    page = _PAGE_BYTES
    layout = _Layout(checkpoint, stretches, None, chunk, block_bytes)
    whole = max(page, _up(layout.length, page))
    if memory_bytes is None or memory_bytes >= layout.length:
        return layout.plan(whole)
    largest = max((placed.tensor.size_bytes for placed in layout.placed), default=0)
    block = block_bytes or 0
    ring = max(page, memory_bytes // page * page, _up(largest, page) + _up(block, page))
    bound = _up(2 * (largest + block) + ALIGNMENT_BYTES, page)
    for attempt in range(_TRIES):
        if ring >= whole:
            break
        chunk = _rounded_chunk(min(chunk_bytes, max(ring // _LEAST_RANGES, _LEAST_CHUNK_BYTES)), block_bytes)
        layout = _Layout(checkpoint, stretches, ring, chunk, block_bytes)
        if layout.length <= ring:
            break
        needed = layout.least_ring()
        if needed <= ring:
            return layout.plan(ring)
        ring = max(ring, bound) if attempt == _TRIES - 2 else _up(needed, page)
    return _Layout(checkpoint, stretches, None, _rounded_chunk(chunk_bytes, block_bytes), block_bytes).plan(whole)


def least_memory_bytes(
    checkpoint: Checkpoint, *, wanted: Callable[[TensorInfo], bool] | None = None, block_bytes: int | None = None
) -> int:
    """The smallest ring that ``make_plan`` accepts for a checkpoint without raising it, in whole pages."""
    return make_plan(checkpoint, chunk_bytes=8 * 1024 * KIB, memory_bytes=1, wanted=wanted, block_bytes=block_bytes).ring_bytes


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _rounded_chunk(chunk: int, block: int | None) -> int:
    """The chunk, such that a block's ends are ranges' ends as well."""
    if block is None:
        return max(1, chunk)
    if chunk >= block:
        return chunk // block * block
    parts = next((parts for parts in range(max(1, -(-block // max(1, chunk))), 65) if block % parts == 0), 1)
    return block // parts


@dataclass(slots=True)
class _Stretch:
    """Bytes of a file that are read without a gap, and the wanted tensors among them."""

    file: int
    start: int
    end: int
    tensors: list[TensorInfo] = field(default_factory=list)


def _stretches(checkpoint: Checkpoint, wanted: Callable[[TensorInfo], bool] | None, block: int | None) -> Iterator[_Stretch]:
    current: _Stretch | None = None
    for tensor in checkpoint.tensors:
        if wanted is not None and not wanted(tensor):
            continue
        file = checkpoint.files[tensor.file]
        start, end = tensor.start, tensor.end
        if tensor.size_bytes == 0:  # needs no bytes, so it must not widen what is read
            start = end = current.end if current is not None and current.file == tensor.file else file.data_start
        elif block is not None:
            start = file.data_start + (start - file.data_start) // block * block
            end = min(file.size_bytes, file.data_start + _up(end - file.data_start, block))
        if current is None or tensor.file != current.file or start - current.end > GAP_BYTES:
            if current is not None:
                yield current
            current = _Stretch(tensor.file, start, end)
        if current.start == current.end:
            current.start = start  # nothing but empty tensors so far
        current.end = max(current.end, end)
        current.tensors.append(tensor)
    if current is not None:
        yield current


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes that lie together in a file and on the line."""

    file: int
    start: int
    end: int
    position: int


class _Layout:
    """Tensors, ranges and length for one size of the ring; None for a ring that never turns."""

    def __init__(
        self, checkpoint: Checkpoint, stretches: Sequence[_Stretch], ring: int | None, chunk: int, block: int | None
    ) -> None:
        self._checkpoint = checkpoint
        self._ring = ring
        self._chunk = chunk
        self._block = block
        self.placed: list[Placed] = []
        self.length = 0
        pieces = [piece for stretch in stretches for piece in self._place(stretch)]
        self.ranges = [range_ for piece in pieces for range_ in self._cut(piece)]

    def plan(self, ring_bytes: int) -> Plan:
        return Plan(self._checkpoint, tuple(self.placed), tuple(self.ranges), ring_bytes, self.length)

    def _place(self, stretch: _Stretch) -> Iterator[_Piece]:
        """Give the stretch's tensors their positions; a tensor that would cross the ring's end goes to the next turn."""
        # As in the file, so that what its writer aligned is aligned in memory. From a window everything is copied, and an offset at
        # its begin could push the first tensor over its end.
        offset = 0 if self._ring is not None else stretch.start - self._checkpoint.files[stretch.file].data_start
        position = self.length + (offset - self.length) % ALIGNMENT_BYTES
        begin = done = stretch.start
        for tensor in stretch.tensors:
            size = tensor.size_bytes
            place = position + (tensor.start if size else done) - begin
            if self._ring is not None and size and place % self._ring + size > self._ring:
                # A sealed block needs the bytes between two tensors as well; nobody else does.
                end = done if self._block is None else tensor.start
                if end > begin:
                    yield _Piece(stretch.file, begin, end, position)
                begin = tensor.start
                position = place = (place // self._ring + 1) * self._ring
            self.placed.append(Placed(tensor, place))
            done = max(done, tensor.end) if size else done
        if stretch.end > begin:
            yield _Piece(stretch.file, begin, stretch.end, position)
        self.length = position + stretch.end - begin

    def _cut(self, piece: _Piece) -> Iterator[Range]:
        """Ranges of one piece: cut at multiples of the chunk, at the ring's end, and where whole blocks begin and end."""
        origin = self._checkpoint.files[piece.file].data_start
        start = piece.start
        while start < piece.end:
            position = piece.position + start - piece.start
            end = min(piece.end, origin + ((start - origin) // self._chunk + 1) * self._chunk)
            if self._ring is not None:
                end = min(end, start + self._ring - position % self._ring)
                if self._block is not None:
                    if (start - origin) % self._block:
                        end = min(end, origin + _up(start - origin, self._block))
                    last = origin + (end - origin) // self._block * self._block
                    if start < last:
                        end = last
            yield Range(piece.file, start, end, position)
            start = end

    def least_ring(self) -> int:
        """The size from which on every block fits into the ring together with the tensor that waits for it.

        While a reader waits for a tensor, nothing from that tensor on may be overwritten, nor from the first range on that is not
        verified. So the distance from the lower of these two to the end of the last range that shares a block with it must fit.
        """
        if self._block is None:
            return 0
        least = 0
        reader = 0
        tensors = [placed for placed in self.placed if placed.tensor.size_bytes]
        for index, range_ in enumerate(self.ranges):
            while reader < len(tensors) and (tensors[reader].tensor.file, tensors[reader].tensor.end) <= (
                range_.file,
                range_.start,
            ):
                reader += 1
            needed_from = min(range_.position, tensors[reader].position) if reader < len(tensors) else range_.position
            origin = self._checkpoint.files[range_.file].data_start
            block_end = origin + _up(range_.end - origin, self._block)
            last = index
            while (
                last + 1 < len(self.ranges)
                and self.ranges[last + 1].file == range_.file
                and self.ranges[last + 1].start < block_end
            ):
                last += 1
            least = max(least, self.ranges[last].position + self.ranges[last].size_bytes - needed_from)
        return least
