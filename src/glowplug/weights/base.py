"""The words that all of ``weights`` shares, as plain data: files, tensors, where each lands in the buffer, and what a load cost.

Standard library only, and Python 3.10: a part of it runs inside an engine, where nothing else of Glowplug is.

**Positions.** A load is one long line of bytes: the wanted tensors of the first file in file order, then those of the second, and
so on. A *position* is a place on that line. Memory is a ring: the byte at position ``p`` lies at ``p % ring_bytes``. In full mode
the ring holds the whole line and never turns; in windowed mode a stretch is filled again once all readers are done with what it
held. What lies together in a file lies together on the line, save where a tensor would cross the ring's end: it begins at the
next turn instead. One number then says how far a load is (all below it has arrived and was verified), and one how far a reader is
(all below may be overwritten).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

ALIGNMENT_BYTES = 64
"""Each file's first tensor, and each turn of the ring, begins at a multiple of this. Within a file the writer's own offsets
decide: a tensor that is not aligned for its type there is not aligned in memory either, and is copied by whoever needs it
aligned."""


class Entry(NamedTuple):
    """A file of a checkpoint, before it is read."""

    name: str
    """Relative to the checkpoint, with ``/``."""
    size_bytes: int
    etag: str
    """Changes when the content does. A server's ETag as it was sent, quotes included; of a local file, inode, size and mtime. Empty
    where a server gives none: then a change under the load can't be noticed."""


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One safetensors file.

    Attributes:
        name: relative to the checkpoint, with ``/``.
        size_bytes: of the whole file.
        etag: as in ``Entry``; every read is pinned to it.
        data_start: where the header ends and the tensors begin, in bytes from the file's begin.
        header_sha256: hex digest of all before ``data_start``.
    """

    name: str
    size_bytes: int
    etag: str
    data_start: int
    header_sha256: str


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor, as its file's header describes it.

    Attributes:
        name: as the model knows it.
        dtype: safetensors' name, such as ``BF16``; a key of ``dtypes.DTYPES``.
        shape: as the header gives it; empty for a scalar. Of types below one byte, in elements.
        file: index into ``Checkpoint.files``.
        start: first byte, counted from the file's begin.
        end: first byte after it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor; 0 where a dimension is 0."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, known from its listing and its headers alone.

    Attributes:
        uri: as the user wrote it, without credentials.
        files: the safetensors files that are loaded, in the order in which they are.
        tensors: all of them, in file order: by file, then by ``start``.
        others: files that are not weights (configuration, tokenizer), by name.
        ignored: weight files that are not loaded, and why.
        metadata: the files' ``__metadata__``, merged.
    """

    uri: str
    files: tuple[WeightFile, ...]
    tensors: tuple[TensorInfo, ...]
    others: tuple[Entry, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors)


class Placed(NamedTuple):
    """A tensor and its place on the line."""

    tensor: TensorInfo
    position: int
    """Of its first byte."""


@dataclass(frozen=True, slots=True)
class Range:
    """One request: bytes that lie together in a file, and together in memory.

    Attributes:
        file: index into ``Checkpoint.files``.
        start: first byte, counted from the file's begin.
        end: first byte after it; larger than ``start``.
        position: of the first byte on the line.
    """

    file: int
    start: int
    end: int
    position: int

    @property
    def size_bytes(self) -> int:
        """Bytes of it."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load reads and where it puts it.

    Attributes:
        checkpoint: what is loaded.
        tensors: in the order of their positions.
        ranges: in the order of their positions; together they cover every byte of ``tensors`` once.
        ring_bytes: memory that the load needs. A multiple of the page size.
        length: of the line: the position after the last byte. ``ring_bytes >= length`` is full mode.
    """

    checkpoint: Checkpoint
    tensors: tuple[Placed, ...]
    ranges: tuple[Range, ...]
    ring_bytes: int
    length: int

    @property
    def is_full(self) -> bool:
        """The ring holds all of it."""
        return self.ring_bytes >= self.length

    @property
    def size_bytes(self) -> int:
        """Bytes that are fetched."""
        return sum(piece.size_bytes for piece in self.ranges)


class Retry(Exception):
    """A request that failed in a way that another attempt may mend: a reset, a stall, a short body, 500, 503.

    Attributes:
        reason: in a few words, for the error that ends the last attempt.
        slow_down: the server asked for fewer requests (503 SlowDown, 429).
        hint: what to do if no attempt mends it; empty where nothing is known but that it failed.
    """

    def __init__(self, reason: str, *, slow_down: bool = False, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.slow_down = slow_down
        self.hint = hint


class Meter(Protocol):
    """Watches one request while it runs, and can end it from another thread. Made by the fetcher, called by a source."""

    def connected(self, abort: Callable[[], None]) -> None:
        """The request has a connection. ``abort`` makes its pending read fail at once, from any thread; it may be called late."""
        ...

    def advance(self, size_bytes: int) -> None:
        """So many more bytes lie in the buffer. May block (bandwidth cap).

        Raises:
            Retry: the request is too slow, or was ended from outside.
        """
        ...

    @property
    def most_bytes(self) -> int:
        """How many bytes to read at most before the next ``advance``."""
        ...


class Source(Protocol):
    """Where a checkpoint's bytes come from. Every method blocks and may be called from several threads at once.

    What another attempt can't mend is raised as ``errors.GlowplugError`` (not found, forbidden, changed, certificate not trusted).
    """

    @property
    def uri(self) -> str:
        """As the user wrote it, without credentials."""
        ...

    @property
    def is_local(self) -> bool:
        """Reads come from a file system: one large read costs no more than many, and nothing is ever slow because of a network."""
        ...

    @property
    def is_single(self) -> bool:
        """The URI names one file, not a folder."""
        ...

    def entries(self) -> list[Entry]:
        """All files of the checkpoint, by name. Of a URL that names one file, that file.

        Raises:
            ObjectNotFound: there is nothing.
        """
        ...

    def beside(self, name: str) -> Entry | None:
        """A file in the folder of the one that the URI names; None where none is, or none that may be read.

        Who may not list a bucket can't tell the two apart.
        """
        ...

    def read_small(self, entry: Entry, start: int, size_bytes: int) -> bytes:
        """A few bytes, with retries; exactly as many as asked for. For headers and configuration files.

        Raises:
            Unreachable: no answer after all attempts, or the file is shorter.
            ObjectChanged: it is no longer the file that was listed.
        """
        ...

    def read_into(self, file: Entry | WeightFile, start: int, view: memoryview, meter: Meter) -> None:
        """Fill the view with one request, straight from the kernel, pinned to the file's ETag.

        Bytes arrive in order, so after a ``Retry`` the caller may go on where the meter stopped.

        Raises:
            Retry: see there. The view holds what arrived before.
        """
        ...

    def name_of(self, file: Entry | WeightFile) -> str:
        """The object's full name for messages: ``s3://bucket/key``, a path, a URL without credentials."""
        ...

    def close(self) -> None:
        """Close kept connections. Reads that run may fail."""
        ...


@dataclass(frozen=True, slots=True)
class FetchStats:
    """What a fetch has cost so far. All counts are of the process that fetches.

    Attributes:
        bytes: delivered and verified.
        bytes_read: received, with what was thrown away.
        seconds: from the begin to the last byte, or to now.
        requests: sent.
        retries: attempts after the first.
        hedges: second requests sent because the first was slow.
        stalls: requests ended because they were too slow.
        throttled: answers that asked for fewer requests.
        concurrency: requests at once that the fetch has settled on, at the end. A higher number that was only being tried then does
            not count, nor does it matter whether there were ranges left for so many.
        most_at_once: ranges that were on their way at once, at most. Second requests are not counted.
        chunk_bytes: largest range.
        cpu_s: processor time of the fetching threads, where it can be told; 0 otherwise.
        blocked_s: time in which nothing could be fetched because the window was full.
        verified: digests were compared.
    """

    bytes: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    requests: int = 0
    retries: int = 0
    hedges: int = 0
    stalls: int = 0
    throttled: int = 0
    concurrency: int = 0
    most_at_once: int = 0
    chunk_bytes: int = 0
    cpu_s: float = 0.0
    blocked_s: float = 0.0
    verified: bool = False


Mode = Literal["full", "windowed"]


@dataclass(frozen=True, slots=True)
class RankStats:
    """What one rank has told of its load.

    Attributes:
        rank: local, from 0.
        attached_s: when it connected, on ``time.monotonic`` of the node.
        wanted_s: when it asked for its first tensor.
        done_s: when it had taken its last tensor.
        waited_s: time in which it waited for bytes.
        tensors: taken.
        skipped: passed over (experts of other ranks, unused weights).
        bytes: taken.
    """

    rank: int
    attached_s: float
    wanted_s: float
    done_s: float
    waited_s: float
    tensors: int
    skipped: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FeedStats:
    """A whole load of a node: the fetch, and its readers.

    Attributes:
        uri: of the checkpoint, without credentials.
        mode: full or windowed.
        ring_bytes: of the buffer.
        begun_s: when the first request was sent, on ``time.monotonic``.
        ended_s: when the last byte had arrived; None while it has not.
        fetch: its cost.
        ranks: those that are done.
        error: why the fetch failed; empty if it did not.
    """

    uri: str
    mode: Mode
    ring_bytes: int
    begun_s: float
    ended_s: float | None
    fetch: FetchStats
    ranks: tuple[RankStats, ...] = field(default=())
    error: str = ""


class Verifier(Protocol):
    """Sealed digests of a checkpoint: blocks of fixed size, counted from each file's ``data_start``."""

    @property
    def block_bytes(self) -> int:
        """Of all blocks but a file's last one."""
        ...

    def check(self, file: int, block: int, pieces: list[memoryview]) -> bool:
        """Whether the block's bytes, in pieces that follow each other, are those that were sealed. Thread-safe."""
        ...
