"""The process that streams where there is no wrapper: started by a loader in the engine, for all ranks of the node.

It ends when all ranks are done or gone, when none has been there for a while, or when the process that started it has died. That
death is seen by the end of the standard input, if this is a pipe: it can't be missed, however early it comes, and it does not
depend on which thread of the parent started us, as a signal from the kernel would (``PR_SET_PDEATHSIG``). Ranks that are attached
then are served to their end all the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import time
from typing import TYPE_CHECKING

from glowplug.errors import LocalError
from glowplug.weights.buffer.feed import Feed
from glowplug.weights.buffer.memory import choose_memory
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.plan import least_memory_bytes
from glowplug.weights.sources.open import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from glowplug.weights.base import Checkpoint, FeedStats, Source, Verifier
    from glowplug.weights.fetch.settings import FetchSettings

PATIENCE_S = 120.0
"""How long nobody may be attached: before the first rank comes, and between two."""
_LOOK_S = 0.5


def serve(
    uri: str,
    socket: Path,
    *,
    ranks: int,
    settings: FetchSettings,
    memory: str = "auto",
    engine_bytes: Callable[[int], int] = lambda _: 0,
    env: Mapping[str, str] | None = None,
    find_verifier: Callable[[Source, Checkpoint], Verifier | None] = lambda _source, _checkpoint: None,
    say: Callable[[str], None] = lambda _: None,
    patience_s: float = PATIENCE_S,
) -> FeedStats | None:
    """Stream a checkpoint to the ranks of this node. Blocks until they are done or gone.

    The socket appears once the checkpoint is known, so that a checkpoint which can't be opened is an error of this call.

    Args:
        uri: of the checkpoint.
        socket: where ranks attach; beside it a lock file is made.
        ranks: how many are expected.
        settings: of the fetch.
        memory: ``auto``, ``full`` or bytes.
        engine_bytes: host memory that the engine needs beside the buffer, for a checkpoint of so many bytes.
        env: the environment: credentials, endpoints. None: this process's.
        find_verifier: gives the checkpoint's sealed digests, if it has any.
        say: told one line about memory.
        patience_s: see ``PATIENCE_S``.

    Returns:
        What the load cost; None: another process serves at this socket.

    Raises:
        UsageError: the URI can't be.
        RemoteError: the checkpoint can't be opened.
        LocalError: no memory, or no socket.
    """
    with _only_one(socket) as mine:
        if not mine:
            return None
        source = open_source(uri, env=env)
        try:
            checkpoint = open_checkpoint(source)
            verifier = find_verifier(source, checkpoint)
            block_bytes = verifier.block_bytes if verifier else None
            choice = choose_memory(
                checkpoint.size_bytes,
                requested=memory,
                engine_bytes=engine_bytes(checkpoint.size_bytes),
                largest_tensor_bytes=least_memory_bytes(checkpoint, block_bytes=block_bytes),
            )
            feed = Feed.open(source, checkpoint, settings=settings, memory=choice, ranks=ranks, verifier=verifier, socket=socket)
            try:
                feed.start()
                say(choice.reason)
                _attend(feed, patience_s)
                return feed.stats()
            finally:
                feed.close()
        finally:
            source.close()


def _attend(feed: Feed, patience_s: float) -> None:
    """Wait until nobody needs the feed."""
    until_s = time.monotonic() + patience_s
    while not feed.wait_done(_LOOK_S):
        if feed.attached:
            until_s = time.monotonic() + patience_s
        elif _parent_has_gone() or time.monotonic() > until_s:
            return


def _parent_has_gone() -> bool:
    """Standard input is a pipe, and nobody can write to it any more."""
    try:
        if not stat.S_ISFIFO(os.fstat(0).st_mode):
            return False
    except OSError:
        return False
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is always told
    return any(events & select.POLLHUP for _, events in poll.poll(0))


@contextlib.contextmanager
def _only_one(socket: Path) -> Iterator[bool]:
    """Whether this process is the one that serves at a socket; it is until the block ends, however it ends."""
    path = socket.with_name(f"{socket.name}.serving")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open(path, "w", encoding="ascii")  # noqa: SIM115  closed below
    except OSError as error:
        raise LocalError(
            f"{path}: {error.strerror or error}", object=str(path), hint="name a socket in a folder of your own"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
