"""The pack: the content of a generation's files as one ``tar.zst``, in the manifest's order.

Anyone can list it (``tar --zstd -tvf``), yet the reader here is no tar reader. The manifest says exactly which header must come
next, so each header is compared, byte for byte, with the one that the manifest's entry gives, and anything else (a link, a
device, an extra member, one byte too many) ends the reading. Nothing that a pack says is ever interpreted.

Memory, whatever the size of the cache: writing, one piece and the compressor's own buffers (about 75 MiB with two threads);
reading, the caller's slabs, and a window of at most 64 MiB.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from glowplug.cache.manifest import NOT_USED, FileEntry, PackInfo
from glowplug.errors import BadPack, LocalError
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.secrets import SecretScan
    from glowplug.cache.tree import TreeFile

PIECE_BYTES = MIB
"""A file's content moves in pieces of at most this size."""
LEVEL = 1
"""Of compiled code, level 3 makes packs 7 % smaller than level 1 and costs 1.7 times the CPU, beside an engine that serves."""
THREADS = 2

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
# What a captured file may keep of its mode: never set-id bits, never write access for others.
_MODE_MASK = 0o755


class TreeChanged(LocalError):
    """A file was written to while it was packed; pack again when the tree is quiet."""


class Source(Protocol):
    """Compressed bytes, in order."""

    def read(self, size: int = -1, /) -> bytes | memoryview:
        """At most ``size`` bytes; empty at the end. A view stays valid until the next call."""
        ...


def member_header(entry: FileEntry) -> bytes:
    """The tar header of an entry: one block, or more for a path that is long or not ASCII.

    The same entry gives the same bytes on every Python.
    """
    info = tarfile.TarInfo(entry.path)
    info.size = entry.size_bytes
    info.mode = entry.mode
    info.mtime = entry.mtime_ns // 1_000_000_000
    return info.tobuf(tarfile.PAX_FORMAT)


def write_pack(
    root: Path,
    files: Sequence[TreeFile],
    target: BinaryIO,
    *,
    scan: SecretScan,
    deadline: Deadline,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[tuple[FileEntry, ...], PackInfo]:
    """Pack files of a live tree, and learn their digests on the way: every byte is read once.

    Args:
        root: the tree's root.
        files: what to pack, sorted by path.
        target: where the pack goes.
        scan: looks at every piece.
        deadline: checked between pieces.
        progress: told how many bytes of content have been packed since the last call.

    Raises:
        TreeChanged: a file changed, grew, shrank, vanished or turned into something else meanwhile.
        SecretFound: a file holds a secret.
        DeadlineExceeded: the time is up.
    """
    import zstandard  # noqa: PLC0415  a start that hits or misses never packs before the engine runs

    sink = _HashingSink(target)
    with zstandard.ZstdCompressor(level=LEVEL, threads=THREADS).stream_writer(cast("BinaryIO", sink), closefd=False) as packed:
        entries = [_write_member(root, file, packed, scan, deadline, progress) for file in files]
        packed.write(_END)
    return tuple(entries), PackInfo(sink.digest.hexdigest(), sink.size_bytes)


def read_pack(
    entries: Iterable[FileEntry], source: Source, *, name: str, slab: Callable[[], bytearray]
) -> Iterator[tuple[FileEntry, memoryview]]:
    """The content of every entry, piece by piece, in order, each file's digest checked before its last piece is given.

    Args:
        entries: the manifest's.
        source: the pack.
        name: its key, for messages.
        slab: gives a buffer to unpack into, whenever the last one is full. It may give one again whose pieces are done with.

    Yields:
        The entry and its next piece, a view of a slab. An empty file yields one empty piece.

    Raises:
        BadPack: the pack is not exactly what the entries say: another member, header or content, truncated, corrupt, or longer.
    """
    import zstandard  # noqa: PLC0415  only a restore needs it

    stream = zstandard.ZstdDecompressor(max_window_size=64 * MIB).stream_reader(
        cast("BinaryIO", source), read_size=MIB, closefd=False
    )
    reader = _Slabs(stream, zstandard.ZstdError, name, slab)
    for entry in entries:
        expected = member_header(entry)
        header = reader.take(len(expected))
        if header != expected:
            raise BadPack(_describe_mismatch(entry, header), object=entry.path, hint=NOT_USED)
        left = entry.size_bytes
        digest = hashlib.sha256()
        while True:
            piece = reader.piece(left)
            digest.update(piece)
            left -= len(piece)
            if not left and digest.hexdigest() != entry.sha256:
                raise BadPack(f"pack: {entry.path!r} is not what its digest says", object=entry.path, hint=NOT_USED)
            yield entry, piece
            if not left:
                break
        padding = -entry.size_bytes % _BLOCK
        if reader.take(padding) != bytes(padding):
            raise BadPack(f"pack: bytes after the end of {entry.path!r}", object=entry.path, hint=NOT_USED)
    if reader.take(len(_END)) != _END or not reader.at_end():
        raise BadPack(f"{name} holds more than its manifest describes", object=name, hint=NOT_USED)


class _Slabs:
    """A stream, unpacked slab by slab: a slab holds many small files, and none of their bytes is copied again."""

    def __init__(self, stream: BinaryIO, corrupt: type[Exception], name: str, slab: Callable[[], bytearray]) -> None:
        self._stream = stream
        self._corrupt = corrupt
        self._name = name
        self._slab = slab
        self._rest = memoryview(b"")

    def piece(self, most: int) -> memoryview:
        """The next bytes that lie together, at least one (unless ``most`` is 0) and at most so many."""
        if most and not self._rest:
            self._rest = self._fill()
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def take(self, size: int) -> bytes:
        """The next bytes, exactly so many; for headers and padding."""
        taken = bytes(self.piece(size))
        while len(taken) < size:
            taken += self.piece(size - len(taken))
        return taken

    def at_end(self) -> bool:
        return not self._rest and not self._read(memoryview(bytearray(1)))

    def _fill(self) -> memoryview:
        view = memoryview(self._slab())
        filled = 0
        while filled < len(view):
            count = self._read(view[filled:])
            if not count:
                break
            filled += count
        if not filled:
            raise BadPack(f"{self._name} is truncated", object=self._name, hint=NOT_USED)
        return view[:filled]

    def _read(self, view: memoryview) -> int:
        try:
            return self._stream.readinto(view)  # type: ignore[attr-defined, no-any-return]
        except self._corrupt as error:
            raise BadPack(f"{self._name} is corrupt: {error}", object=self._name, hint=NOT_USED) from None


class _HashingSink:
    """Writes through, and knows length and digest."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size_bytes += len(data)
        self._target.write(data)
        return len(data)


def _write_member(
    root: Path,
    file: TreeFile,
    packed: BinaryIO,
    scan: SecretScan,
    deadline: Deadline,
    progress: Callable[[int], None],
) -> FileEntry:
    digest = hashlib.sha256()
    mode = file.mode & _MODE_MASK
    # The header comes before the content, and needs no digest.
    header = member_header(FileEntry(file.path, file.size_bytes, mode, file.mtime_ns, ""))
    try:
        descriptor = os.open(os.path.join(root, file.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TreeChanged(f"{file.path}: {error.strerror}", object=file.path) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TreeChanged(f"{file.path} is no longer a plain file", object=file.path)
        packed.write(header)
        left = file.size_bytes
        while left:
            deadline.check()
            piece = os.read(descriptor, min(left, PIECE_BYTES))
            if not piece:
                raise TreeChanged(f"{file.path} shrank while it was packed", object=file.path)
            scan.check(file.path, piece)
            digest.update(piece)
            packed.write(piece)
            left -= len(piece)
            progress(len(piece))
        info = os.fstat(descriptor)
        if (info.st_size, info.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
            raise TreeChanged(f"{file.path} changed while it was packed", object=file.path)
    finally:
        os.close(descriptor)
    packed.write(bytes(-file.size_bytes % _BLOCK))
    return FileEntry(file.path, file.size_bytes, mode, file.mtime_ns, digest.hexdigest())


def _describe_mismatch(entry: FileEntry, header: bytes) -> str:
    """What stands where the entry's header should be, for the error only."""
    try:
        found = tarfile.TarInfo.frombuf(header[-_BLOCK:], "utf-8", "replace")
    except tarfile.TarError:
        return f"pack: where {entry.path!r} should begin there is no tar header"
    kind = {
        tarfile.SYMTYPE: "a symbolic link",
        tarfile.LNKTYPE: "a hard link",
        tarfile.CHRTYPE: "a device",
        tarfile.BLKTYPE: "a device",
        tarfile.FIFOTYPE: "a pipe",
        tarfile.DIRTYPE: "a folder",
    }.get(found.type, f"a file of {found.size} bytes and mode {found.mode:#o}")
    return f"pack: {found.name[:200]!r}, {kind}, stands where the manifest says {entry.path!r}"
