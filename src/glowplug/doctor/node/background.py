"""Work that may hang, in a thread that nobody has to wait for.

A name server, a credential helper, a store or a network file system that is silent holds up its own thread alone; what is known by
then is used. The threads are daemons: a doctor that has printed its findings ends at once.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from glowplug.threads import begin, none_left

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Background(Generic[_T]):
    """Begins at once.

    Args:
        work: what to do.

    Attributes:
        value: what it has made of it; None before it has ended.

    Raises:
        LocalError: no thread can be started.
    """

    def __init__(self, work: Callable[[], _T]) -> None:
        self.value: _T | None = None
        self._work = work
        self._error: BaseException | None = None
        self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="glowplug-doctor", daemon=True)
        if not begin(self._thread):
            raise none_left()

    def ended(self, within_s: float) -> bool:
        """Wait, at most so long after the begin. Whether it has ended; what it raised is raised here."""
        self._thread.join(max(0.0, self._begun_s + within_s - time.monotonic()))
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits
            self._error = error
