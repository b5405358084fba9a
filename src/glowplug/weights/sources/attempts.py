"""What an attempt at a request has in common, whatever it asks for: how it may fail, and which connection the next one takes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from glowplug.store.s3_http import Broken, ConnectFailed
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glowplug.errors import Unreachable


class Attempts:
    """Of one source. After one that failed, the same thread's next takes a new connection. Safe for any number of threads."""

    def __init__(self) -> None:
        self._thread = threading.local()

    @contextmanager
    def one(self, unreachable: Callable[[ConnectFailed], Unreachable]) -> Iterator[bool]:
        """A block that sends one request and takes its answer; gives whether to take no kept connection.

        Args:
            unreachable: the error for a server to which there is no connection.

        Raises:
            Retry: no connection, or it broke.
            Unreachable: no connection, and another attempt would end the same way.
        """
        fresh, self._thread.fresh = getattr(self._thread, "fresh", False), True
        try:
            yield fresh
        except ConnectFailed as error:
            known = unreachable(error)
            if error.is_final:
                raise known from error
            raise Retry(known.message) from error
        except Broken as error:
            raise Retry(str(error)) from error
        self._thread.fresh = False
