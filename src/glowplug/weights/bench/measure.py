"""A whole load without an engine, to measure it: every tensor is delivered, looked at, and dropped.

What is measured is the library's own stream, with the plan and the fetch of a start. What is not: handing a buffer to other
processes, copying tensors to a device, and an engine that uses the processor at the same time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import FetchStats, Mode
    from glowplug.weights.streaming.mapped import MappedStream
    from glowplug.weights.streaming.stream import ByteStream

GB = 1e9
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load cost.

    Attributes:
        tensors: delivered.
        bytes: of them.
        seconds: from the first request to the last tensor. Listing and headers came before.
        first_s: until the first tensor was there.
        cpu_s: processor time of this process meanwhile, all threads, user and system.
        mode: full, windowed or mapped.
        ring_bytes: of the buffer; 0 where there is none.
        fetch: the fetch's own account.
    """

    tensors: int
    bytes: int
    seconds: float
    first_s: float
    cpu_s: float
    mode: Mode | Literal["mapped"]
    ring_bytes: int
    fetch: FetchStats

    @property
    def gb_per_s(self) -> float:
        """Throughput in GB (10**9 bytes) a second."""
        return self.bytes / GB / self.seconds if self.seconds else 0.0

    @property
    def cpu_s_per_gb(self) -> float:
        """Processor seconds for each GB."""
        return self.cpu_s / (self.bytes / GB) if self.bytes else 0.0


def measure(opened: ByteStream | MappedStream, *, progress: Callable[[int], None] | None = None) -> Measured:
    """Load everything once. Blocks.

    Args:
        opened: from ``stream_bytes``, not entered yet; closed at the end.
        progress: told the bytes of each tensor that was delivered.

    Raises:
        RemoteError: the source did not deliver.
        IntegrityError: a block is not what was sealed.
    """
    plan = opened.plan
    begun_s, cpu_s, first_s = time.monotonic(), time.process_time(), 0.0
    with opened:
        for tensor, view in opened:
            first_s = first_s or time.monotonic() - begun_s
            _look_at(view)
            if progress is not None:
                progress(tensor.size_bytes)
        seconds, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        return Measured(
            tensors=len(plan.tensors),
            bytes=sum(tensor.size_bytes for tensor, _ in plan.tensors),
            seconds=seconds,
            first_s=first_s,
            cpu_s=cpu_s,
            mode=opened.mode,
            ring_bytes=opened.memory_bytes,
            fetch=opened.stats(),
        )


def _look_at(view: memoryview) -> int:
    """Read a byte of each page, so that all of it was there in truth: what is only mapped is brought in by that."""
    return max(bytes(view[::_PAGE_BYTES]), default=0)
