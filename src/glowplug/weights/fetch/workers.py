"""The threads of one fetch: as many as are wanted, none whose end leaves somebody waiting, and what processor time they took."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug import threads
from glowplug.errors import GlowplugError, LocalError
from glowplug.weights.fetch.state import Over

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "glowplug-fetch"


class Workers:
    """Started under the fetcher's lock; everything else may be called from any thread.

    Args:
        serve: what each of them does until nothing is left to do.
        uri: of the checkpoint, for messages.
        on_error: told of what ends a thread that should not have ended.
    """

    def __init__(self, serve: Callable[[], None], uri: str, on_error: Callable[[GlowplugError], None]) -> None:
        self.count = 0
        """That serve."""
        self._serve = serve
        self._uri = uri
        self._on_error = on_error
        self._threads: list[threading.Thread] = []
        self._cpu_s: dict[str, float] = {}

    def grow(self, count: int) -> None:
        """Have so many that serve, or as many as the system has threads."""
        while self.count < count and self.start(self._serve, str(self.count)):
            self.count += 1

    def start(self, work: Callable[[], None], name: str) -> bool:
        """Begin a thread; whether the system had one."""
        thread = threading.Thread(target=self._live, args=(work,), name=f"{_NAME}-{name}", daemon=True)
        if not threads.begin(thread):
            return False
        self._threads.append(thread)
        return True

    @property
    def cpu_s(self) -> float:
        """Processor time of all of them, as they have noted it."""
        return sum(self._cpu_s.values())

    def note_cpu(self) -> None:
        """Called by each thread of them now and then."""
        self._cpu_s[threading.current_thread().name] = time.thread_time()

    def join(self, timeout_s: float) -> None:
        """Wait for each of them to end, for so long."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _live(self, work: Callable[[], None]) -> None:
        """A thread's life: nothing that goes wrong in it leaves the others, or a reader, waiting."""
        try:
            work()
        except Over:
            pass
        except GlowplugError as error:
            self._on_error(error)
        except MemoryError:
            hint = "raise ulimit -v or the container's memory limit, or set fewer requests at once or a smaller buffer"
            self._on_error(LocalError("no memory is left for the weights' fetch", object=self._uri, hint=hint))
        except BaseException as error:
            self._on_error(LocalError(f"the weights' fetch broke: {type(error).__name__}: {error}", object=self._uri))
            raise
        finally:
            self.note_cpu()
