"""A load of a node, put together: a fetch that fills a buffer, and a service that hands the buffer to the ranks.

The wrapper has one inside itself (``glowplug run``); where there is no wrapper, the loader in the engine starts a process that has
nothing else (``serving``).

Memory: the buffer (``MemoryChoice.ring_bytes``; in full mode the checkpoint's size), and what ``Fetcher`` documents beside it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from glowplug.weights.base import FeedStats
from glowplug.weights.buffer.host_buffer import HostBuffer
from glowplug.weights.buffer.service import Service
from glowplug.weights.fetch.fetcher import Fetcher
from glowplug.weights.fetch.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.errors import GlowplugError
    from glowplug.weights.base import Checkpoint, Plan, Source, Verifier
    from glowplug.weights.buffer.memory import MemoryChoice
    from glowplug.weights.fetch.settings import FetchSettings


class Feed:
    """One checkpoint for the ranks of this node. Made by ``open``; methods may be called from any thread.

    Attributes:
        plan: what is fetched, and where it goes.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        *,
        settings: FetchSettings,
        ranks: int,
        verifier: Verifier | None,
        socket: Path | None,
    ) -> None:
        self.plan = plan
        self._freeing = threading.Lock()
        self._begun_s = 0.0
        self._ended_s: float | None = None
        self._error: GlowplugError | None = None
        self._buffer = HostBuffer("glowplug-weights", plan.ring_bytes)
        try:
            self._service = Service(
                plan, self._buffer, uri=source.uri, ranks=ranks, path=socket, on_floor=self._move, on_over=self._free
            )
        except BaseException:
            self._buffer.close()
            raise
        self._fetcher = Fetcher(
            source,
            plan,
            self._buffer.view,
            settings,
            verifier=verifier,
            on_progress=self._progress,
            on_error=self._fail,
            # A ring that turns is touched once and then used again; a disk is read past the page cache straight into its place.
            write=self._buffer.write if plan.is_full and not source.is_local and not self._buffer.has_huge_pages else None,
        )

    @classmethod
    def open(
        cls,
        source: Source,
        checkpoint: Checkpoint,
        *,
        settings: FetchSettings,
        memory: MemoryChoice,
        ranks: int,
        verifier: Verifier | None = None,
        socket: Path | None = None,
    ) -> Feed:
        """Take the memory's address space and listen; nothing is fetched or answered before ``start``.

        Args:
            source: where from; stays the caller's, and must stay open until ``close``.
            checkpoint: what.
            settings: of the fetch.
            memory: how much of it at once.
            ranks: readers that are expected, until one of them says how many there are.
            verifier: sealed digests: every block is compared before a rank may read it.
            socket: where to listen; None: in a new private folder.

        Raises:
            LocalError: no buffer, or no socket.
        """
        plan = make_plan(
            checkpoint,
            chunk_bytes=settings.chunk_for(local=source.is_local),
            memory_bytes=memory.plan_bytes,
            block_bytes=verifier.block_bytes if verifier else None,
        )
        return cls(source, plan, settings=settings, ranks=ranks, verifier=verifier, socket=socket)

    @property
    def socket(self) -> Path:
        """Where ranks attach."""
        return self._service.path

    @property
    def error(self) -> GlowplugError | None:
        """Why the fetch has failed; None if it has not."""
        return self._error

    @property
    def attached(self) -> int:
        """Ranks that read at the moment."""
        return self._service.attached

    def start(self) -> None:
        """Begin to fetch and to answer. Returns at once."""
        self._begun_s = time.monotonic()
        self._service.start()
        self._fetcher.start()

    def wait_done(self, timeout_s: float | None = None) -> bool:
        """Wait until all ranks are done, gone or given up. False: not in time."""
        return self._service.wait_over(timeout_s)

    def stats(self) -> FeedStats:
        """What the load has cost so far."""
        return FeedStats(
            uri=self.plan.checkpoint.uri,
            mode=self._service.mode,
            ring_bytes=self.plan.ring_bytes,
            begun_s=self._begun_s,
            ended_s=self._ended_s,
            fetch=self._fetcher.stats(),
            ranks=self._service.ranks,
            error=self._error.message if self._error else "",
        )

    def close(self) -> None:
        """Abort what is still fetched, hang up and free the memory. Ranks that still wait learn that nothing more comes."""
        self._service.close()
        self._free()

    def _progress(self, complete: int) -> None:
        if complete >= self.plan.length:
            self._ended_s = time.monotonic()
        self._service.progress(complete)

    def _fail(self, error: GlowplugError) -> None:
        self._error = error
        self._service.fail(error)

    def _move(self, floor: int) -> None:
        if not self.plan.is_full:
            self._fetcher.consumed(floor)

    def _free(self) -> None:
        """Nobody needs the buffer any more: end the fetch and let go of the memory. Pages that a rank still maps stay its own."""
        with self._freeing:
            self._fetcher.close()
            self._buffer.close()
