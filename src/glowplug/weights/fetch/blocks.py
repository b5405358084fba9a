"""Which sealed blocks a plan's ranges make up, and when one of them is whole.

A range may hold several blocks or a part of one; a block may lie in two turns of the ring. Bookkeeping only: whoever fetches calls
this under its own lock, and the digests are the verifier's business.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from glowplug.weights.base import Plan, Range


class Block(NamedTuple):
    """One sealed block."""

    file: int
    number: int


class Stretch(NamedTuple):
    """A part of a block that lies together in memory."""

    start: int
    """First byte, counted from the file's begin."""
    end: int
    """First byte after it."""
    position: int
    """Of the first byte on the line."""


class Blocks:
    """The blocks of a plan.

    Args:
        plan: made for blocks of this size.
        block_bytes: of all but a file's last one.

    Raises:
        ValueError: a block is not covered by the ranges, so it could never be checked.
    """

    def __init__(self, plan: Plan, block_bytes: int) -> None:
        self._plan = plan
        self._block_bytes = block_bytes
        self._ranges: dict[Block, list[int]] = collections.defaultdict(list)
        self._blocks: list[list[Block]] = []
        for index, range_ in enumerate(plan.ranges):
            blocks = list(self._touched(range_))
            self._blocks.append(blocks)
            for block in blocks:
                self._ranges[block].append(index)
        self._missing = {block: len(indices) for block, indices in self._ranges.items()}
        self._unverified = [len(blocks) for blocks in self._blocks]
        for block in self._ranges:
            start, end = self.bounds(block)
            if sum(stretch.end - stretch.start for stretch in self.stretches(block)) != end - start:
                raise ValueError(f"the plan does not cover {block}")

    def arrived(self, index: int) -> list[Block]:
        """A range is there. The blocks that are whole now; each is given once."""
        for block in self._blocks[index]:
            self._missing[block] -= 1
        return [block for block in self._blocks[index] if not self._missing[block]]

    def verified(self, block: Block) -> list[int]:
        """A block is as it was sealed. The ranges that hold no other one to wait for."""
        ready = []
        for index in self._ranges[block]:
            self._unverified[index] -= 1
            if not self._unverified[index]:
                ready.append(index)
        return ready

    def bounds(self, block: Block) -> tuple[int, int]:
        """The block's first byte and the first one after it, counted from the file's begin."""
        file = self._plan.checkpoint.files[block.file]
        start = file.data_start + block.number * self._block_bytes
        return start, min(start + self._block_bytes, file.size_bytes)

    def stretches(self, block: Block) -> list[Stretch]:
        """Where the block's bytes lie, in the order of the file."""
        begin, end = self.bounds(block)
        found = []
        for index in self._ranges[block]:
            range_ = self._plan.ranges[index]
            start = max(begin, range_.start)
            found.append(Stretch(start, min(end, range_.end), range_.position + start - range_.start))
        return sorted(found)

    def _touched(self, range_: Range) -> list[Block]:
        origin = self._plan.checkpoint.files[range_.file].data_start
        first, last = (range_.start - origin) // self._block_bytes, (range_.end - 1 - origin) // self._block_bytes
        return [Block(range_.file, number) for number in range(first, last + 1)]
