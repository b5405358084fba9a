"""What an attempt at a request has in common, whatever it asks for: how it may fail, and which connection the next one takes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from glowplug.store.s3_http import Broken, ConnectFailed
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from glowplug.errors import Unreachable


class Attempts:
    """Of one source. After one that failed, the same thread's next takes a new connection. Safe for any number of threads."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def one(self, unreachable: Callable[[ConnectFailed], Unreachable]) -> _Attempt:
        """A block that sends one request and takes its answer; gives whether to take no kept connection.

        Args:
            unreachable: the error for a server to which there is no connection.

        Raises:
            Retry: no connection, or it broke.
            Unreachable: no connection, and another attempt would end the same way.
        """
        return _Attempt(self._thread, unreachable)


class _Attempt:
    # Not a generator: on Python 3.13 one that raises another error keeps the first, and so the view, until the next collection.
    def __init__(self, thread: threading.local, unreachable: Callable[[ConnectFailed], Unreachable]) -> None:
        self._thread = thread
        self._unreachable = unreachable

    def __enter__(self) -> bool:
        fresh, self._thread.fresh = getattr(self._thread, "fresh", False), True
        return fresh

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._thread.fresh = False
        elif isinstance(error, ConnectFailed):
            if error.is_final:
                raise self._unreachable(error) from error
            raise Retry(self._unreachable(error).message) from error
        elif isinstance(error, Broken):
            raise Retry(str(error)) from error
