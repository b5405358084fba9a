"""Threads on a machine that may have none left: a limit of processes (``ulimit -u``, a pod's pids limit) or of memory is reached.

Most work that is shared between threads can be done by fewer of them. So whoever starts some goes on with those that run, and only
where there is none is it an error, one that says which limits to look at. This leaf starts threads and does nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable


def begin(thread: threading.Thread) -> bool:
    """Start a thread. False where the system has none left; that one must not be joined."""
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        if thread.ident is not None:  # it runs, or has run: it was started twice, which is a mistake of the program
            raise
        return False
    return True


def begin_some(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Start as many of these as the system has. Those that run; after the first that can't, no other is tried.

    Raises:
        LocalError: not one could be started.
    """
    started = []
    for thread in threads:
        if not begin(thread):
            break
        started.append(thread)
    else:
        return started
    if not started:
        raise none_left()
    return started


def none_left() -> LocalError:
    """The error for work that not even one thread could be started for."""
    hint = "raise ulimit -u and ulimit -v, and the pids and memory limits of the container, or end other processes there"
    return LocalError("no thread can be started: a limit of processes or of memory is reached", object="threads", hint=hint)
