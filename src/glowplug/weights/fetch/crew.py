"""Threads that work off a list: the first error ends all of them, and none keeps a process from ending.

``concurrent.futures`` joins its threads when the interpreter exits, so that Ctrl-C during a large transfer would wait for every
request under way. These are daemons.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from glowplug.threads import begin_some

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_R = TypeVar("_R")


def each(
    work: Callable[[_T], _R],
    items: Sequence[_T],
    *,
    threads: int,
    name: str,
    stop: Callable[[], None] | None = None,
    linger_s: float = 0.0,
) -> list[_R]:
    """What ``work`` makes of each item, in the items' order. They are begun in that order, so many at a time. Blocks.

    Args:
        work: called in the threads.
        items: to work off.
        threads: at most; no more than there are items.
        name: of the threads.
        stop: called at the first error or interrupt, to end the work that is under way.
        linger_s: how long an interrupt waits for the threads to end.

    Raises:
        LocalError: no thread can be started; of several, those that can do the work of all.
        BaseException: the first error of ``work``, or what interrupted the caller.
    """
    state = _Crew(work, items, stop)
    crew = begin_some([threading.Thread(target=state.run, name=name, daemon=True) for _ in range(min(threads, len(items)))])
    try:
        for thread in crew:
            thread.join()
    except BaseException as error:
        state.fail(error)
        deadline_s = time.monotonic() + linger_s
        for thread in crew:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        raise
    if state.failures:
        raise state.failures[0]
    return [state.results[number] for number in range(len(items))]


class _Crew(Generic[_T, _R]):
    def __init__(self, work: Callable[[_T], _R], items: Sequence[_T], stop: Callable[[], None] | None) -> None:
        self.results: dict[int, _R] = {}
        self.failures: list[BaseException] = []
        self._work = work
        self._items = items
        self._stop = stop
        self._numbers = iter(range(len(items)))
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None or self.failures:
                return
            try:
                self.results[number] = self._work(self._items[number])
            except BaseException as error:  # noqa: BLE001  handed to the caller's thread, which raises it
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        if self._stop is not None:
            self._stop()
