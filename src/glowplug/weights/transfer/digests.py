"""The digests of a local file: of all of it, and of its sealed blocks, in one pass over its bytes.

Memory: one buffer of 8 MiB for a call. SHA-256 runs at 0.4 to 2 GB/s a core, depending on whether the processor has instructions
for it, and without the interpreter's lock, so files are read in parallel.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import LocalError
from glowplug.units import MIB
from glowplug.weights.seals.seal import BLOCK_BYTES, new_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BUFFER_BYTES = 8 * MIB


class FileDigests(NamedTuple):
    """What a file's bytes come to."""

    sha256: str
    """Of the whole file, as hex digits."""
    blocks: bytes
    """Of its blocks, one after another; empty where none were asked for."""


class Stamp(NamedTuple):
    """Changes when a file is replaced or written."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int


def stamp(path: Path) -> Stamp:
    """The file's stamp; of a link, of what it points to.

    Raises:
        LocalError: there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}", object=str(path)) from error
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def digest_file(
    path: Path,
    *,
    algorithm: str | None = None,
    data_start: int = 0,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int], None] | None = None,
) -> FileDigests:
    """Read a file once. Blocks for the disk; no lock is held.

    Args:
        path: of the file.
        algorithm: of its blocks' digests; None for none.
        data_start: where the first block begins.
        block_bytes: size of each block but the last.
        progress: told the bytes that were read since the last call.

    Raises:
        LocalError: the file can't be read.
        IncompatibleError: the algorithm is not installed.
    """
    whole = hashlib.sha256()
    blocks: list[bytes] = []
    new = new_hash(algorithm) if algorithm else None
    try:
        with open(path, "rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size
            view = memoryview(bytearray(max(1, min(_BUFFER_BYTES, left))))
            block, room = None, 0
            head = min(data_start, left) if new else left
            while left:
                # Never across the header's end or a block's.
                want = min(view.nbytes, head or room or block_bytes, left)
                count = file.readinto(view[:want]) or 0
                if not count:
                    raise LocalError(f"{path} became shorter while it was read", object=str(path))
                piece = view[:count]
                whole.update(piece)
                left -= count
                if progress is not None:
                    progress(count)
                if head:
                    head -= count
                    continue
                assert new is not None  # noqa: S101  without blocks all is head
                if block is None:
                    block, room = new(), block_bytes
                block.update(piece)
                room -= count
                if not room or not left:
                    blocks.append(block.digest())
                    block, room = None, 0
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}", object=str(path)) from error
    return FileDigests(whole.hexdigest(), b"".join(blocks))
