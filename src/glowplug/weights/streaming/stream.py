"""A checkpoint as a stream of tensors, in the order of its files, through a buffer that stays as small as it is asked to be.

For programs of any kind: nothing here knows an engine, and one process reads what it fetched itself. Ranks of a node that share a
fetch use ``feed`` instead.

Local files are mapped (``mapped``), and take no memory of ours, unless a seal is to be compared, a size of memory is asked for,
or ``GLOWPLUG_WEIGHTS_DIRECT=always`` is set. Host memory of any other stream is ``ring + rivals + tensor``:

- ``ring``: ``memory_bytes``, in whole pages; never less than the largest tensor (with a seal, ``plan.least_memory_bytes``);
- ``rivals``: at most 4 ranges (8 MiB each from a network, unless ``chunk_bytes`` says otherwise), and only while second requests
  are running because the first are late;
- ``tensor``: with ``stream``, the copy that was handed out last, and whatever the caller keeps. In full mode tensors are views of
  the ring, which lives as long as one of them does.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.units import MIB
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.fetcher import Fetcher
from glowplug.weights.fetch.plan import make_plan
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.sources.open import open_source
from glowplug.weights.streaming.mapped import MappedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    import torch

    from glowplug.weights.base import Checkpoint, FetchStats, Mode, Plan, Source, TensorInfo, Verifier

WINDOW_BYTES = 512 * MIB
"""Where nothing is said. A small ring is a fast one: its pages are touched once and then used again."""
_AHEAD_BYTES = 256 * MIB  # beside the largest tensor, so that fetching goes on while that one is read


def stream(
    uri: str,
    *,
    env: Mapping[str, str] | None = None,
    settings: FetchSettings | None = None,
    memory_bytes: int | None = None,
    wanted: Callable[[TensorInfo], bool] | None = None,
    device: str | torch.device = "cpu",
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a checkpoint as ``(name, tensor)``, in the order of its files. Blocks for the bytes. Needs torch.

    With a window each tensor is a copy of its own, so it may be kept. Of local files tensors on the host are views of the mapping,
    and with ``memory_bytes=-1`` of a buffer that holds the whole checkpoint. Closing the iterator, or leaving the loop, stops the
    fetch and frees the ring.
    The module's docstring has the formula of memory.

    Args:
        uri: ``s3://bucket/prefix``, ``http(s)://...``, ``file:///...`` or a path.
        env: the environment: credentials, endpoints, settings. None: this process's.
        settings: of the fetch; None: what the environment says.
        memory_bytes: of the ring; -1: the whole checkpoint; 0: the largest tensor. None: ``settings.memory_bytes``, or 512 MiB and
            at least 256 MiB more than the largest tensor; local files are mapped instead.
        wanted: which tensors; None: all.
        device: where to put them, as torch names it.

    Raises:
        UsageError: the URI can't be, or torch is not installed.
        GlowplugError: the checkpoint can't be opened or fetched; the iterator raises it where it happens.
    """
    try:
        from glowplug.weights.tensors import tensor_of, tensor_over  # noqa: PLC0415  torch is the caller's to install
    except ImportError:
        raise UsageError(
            "stream yields torch tensors, and torch is not installed", object="torch", hint="install torch, or use stream_bytes"
        ) from None
    opened = stream_bytes(uri, env=env, settings=settings, memory_bytes=memory_bytes, wanted=wanted)

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        with opened:
            keeps = opened.plan.is_full and str(device) == "cpu"
            for info, view in opened:
                if keeps:
                    yield info.name, tensor_over(view, info.dtype, info.shape)
                else:
                    yield info.name, tensor_of(view, info.dtype, info.shape, device)

    return tensors()


def stream_bytes(
    uri: str,
    *,
    env: Mapping[str, str] | None = None,
    settings: FetchSettings | None = None,
    memory_bytes: int | None = None,
    wanted: Callable[[TensorInfo], bool] | None = None,
    find_verifier: Callable[[Source, Checkpoint], Verifier | None] | None = None,
) -> ByteStream | MappedStream:
    """The same as bytes, without torch: a context that yields ``(TensorInfo, memoryview)``.

    Opens the checkpoint at once; fetches from the begin of the ``with`` block to its end.

    Args:
        uri: as for ``stream``.
        env: as for ``stream``.
        settings: as for ``stream``.
        memory_bytes: as for ``stream``.
        wanted: as for ``stream``.
        find_verifier: gives the checkpoint's sealed digests, if it has any.

    Raises:
        UsageError: the URI can't be.
        GlowplugError: the checkpoint can't be opened.
    """
    env = os.environ if env is None else env
    settings = settings or FetchSettings.from_env(env)
    source = open_source(uri, env=env)
    try:
        checkpoint = open_checkpoint(source)
        verifier = find_verifier(source, checkpoint) if find_verifier else None
        asked = settings.memory_bytes if memory_bytes is None else memory_bytes
        if asked is None and verifier is None and isinstance(source, LocalSource) and source.maps:
            return MappedStream(source, make_plan(checkpoint, chunk_bytes=settings.chunk_for(local=True), wanted=wanted))
        if asked is None:
            largest = max((tensor.size_bytes for tensor in checkpoint.tensors if wanted is None or wanted(tensor)), default=0)
            asked = max(WINDOW_BYTES, largest + _AHEAD_BYTES)
        plan = make_plan(
            checkpoint,
            chunk_bytes=settings.chunk_for(local=source.is_local),
            memory_bytes=None if asked < 0 else asked,
            wanted=wanted,
            block_bytes=verifier.block_bytes if verifier else None,
        )
    except BaseException:
        source.close()
        raise
    return ByteStream(source, plan, settings, verifier)


class ByteStream:
    """A context and an iterator, for one pass and one thread.

    Each view is valid until the next step, and in full mode for as long as it is held.

    Args:
        source: where from; closed with the stream.
        plan: what.
        settings: of the fetch.
        verifier: sealed digests.
    """

    def __init__(self, source: Source, plan: Plan, settings: FetchSettings, verifier: Verifier | None = None) -> None:
        self.plan = plan
        self._source = source
        # Not shared with anybody, so it may have the large pages that cost a third of small ones when they are touched first.
        self._ring = mmap.mmap(-1, plan.ring_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without them
            self._ring.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(self._ring)
        self._fetcher = Fetcher(source, plan, self._view, settings, verifier=verifier)
        self._is_read = False

    @property
    def mode(self) -> Mode:
        """Full or windowed."""
        return "full" if self.plan.is_full else "windowed"

    @property
    def memory_bytes(self) -> int:
        """Of the ring."""
        return self.plan.ring_bytes

    def __enter__(self) -> Self:
        self._fetcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[TensorInfo, memoryview]]:
        """Every wanted tensor, in the order of the plan.

        Raises:
            GlowplugError: the fetch has failed.
            ValueError: it was iterated before.
        """
        if self._is_read:
            raise ValueError("a stream can be read once; open another one")
        self._is_read = True
        for tensor, position in self.plan.tensors:
            self._wait(position, position + tensor.size_bytes)
            place = position % self.plan.ring_bytes
            yield tensor, self._view[place : place + tensor.size_bytes]

    def stats(self) -> FetchStats:
        """What it has cost so far; may be asked after the end."""
        return self._fetcher.stats()

    def close(self) -> None:
        """Stop fetching and free the ring, unless somebody holds a view of it. May be called more than once."""
        self._fetcher.close()
        self._source.close()
        self._view.release()
        with contextlib.suppress(BufferError):  # the last view that is let go unmaps it
            self._ring.close()

    def _wait(self, start: int, end: int) -> None:
        """Give back all before ``start``, but nothing that is still on its way, and wait for the bytes up to ``end``."""
        while (complete := self._fetcher.complete) < end:
            self._fetcher.consumed(min(start, complete))
            self._fetcher.wait(complete + 1)
        self._fetcher.consumed(start)
