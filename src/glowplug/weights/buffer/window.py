"""How far the readers are, and from where on memory may not be overwritten: the part of a windowed load that could go wrong.

Plain arithmetic without threads, clocks or sockets, so that it can be tried with every order of events. The owner serialises calls.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.weights.base import Plan


class Window:
    """Positions of a load's readers.

    A reader that is expected and has not come yet holds the window at its begin; one that is done, gone or given up holds nothing.

    Args:
        plan: of the load.
        readers: how many are expected, numbered from 0.
    """

    def __init__(self, plan: Plan, readers: int) -> None:
        self._plan = plan
        self._starts = [range_.position for range_ in plan.ranges]
        self._absent = set(range(readers))
        self._known: set[int] = set()  # came, or were given up
        self._consumed: dict[object, int] = {}
        self._complete = 0
        self._floor = 0

    @property
    def floor(self) -> int:
        """The position from which on nothing may be overwritten. Never falls."""
        return self._floor

    @property
    def absent(self) -> frozenset[int]:
        """Expected readers that have not come and were not given up."""
        return frozenset(self._absent)

    def expect(self, readers: int) -> None:
        """So many readers there will be, as one of them has told. More than before count only while nothing was overwritten."""
        expected = set(range(readers)) - self._known
        self._absent = expected if self._floor == 0 else self._absent & expected
        self._move()

    def attach(self, reader: int, key: object) -> bool:
        """A reader comes. False: what it would need first is overwritten already.

        Args:
            reader: its number.
            key: stands for it from now on; a number may come twice.
        """
        if self._floor:
            return False
        self._absent.discard(reader)
        self._known.add(reader)
        self._consumed[key] = 0
        return True

    def consume(self, key: object, position: int) -> None:
        """The reader needs nothing below this position any more."""
        if key in self._consumed:
            self._consumed[key] = max(self._consumed[key], min(position, self._plan.length))
        self._move()

    def detach(self, key: object) -> None:
        """The reader is done, or gone."""
        self._consumed.pop(key, None)
        self._move()

    def give_up(self) -> None:
        """Wait no longer for readers that have not come."""
        self._known |= self._absent
        self._absent.clear()
        self._move()

    def completed(self, position: int) -> None:
        """All below this position has arrived and was verified."""
        self._complete = max(self._complete, position)
        self._move()

    def is_held_by_absent(self) -> bool:
        """Nothing more can be fetched, and could be if the absent readers were given up."""
        if not self._absent or not self._consumed:
            return False
        index = self._first_missing()
        if index >= len(self._plan.ranges):
            return False
        end = self._plan.ranges[index].position + self._plan.ranges[index].size_bytes - self._plan.ring_bytes
        return self._floor < end <= min(*self._consumed.values(), self._starts[index])

    def _first_missing(self) -> int:
        """Index of the first range that is not complete."""
        index = bisect.bisect_right(self._starts, self._complete) - 1
        if index >= 0 and self._complete >= self._starts[index] + self._plan.ranges[index].size_bytes:
            index += 1
        return max(index, 0)

    def _move(self) -> None:
        """Let the floor rise, but not past what is still on its way: a reader that skips tensors may be ahead of the fetch."""
        index = self._first_missing()
        missing = self._starts[index] if index < len(self._starts) else self._plan.length
        readers = 0 if self._absent else min(self._consumed.values(), default=self._plan.length)
        self._floor = max(self._floor, min(readers, missing))
