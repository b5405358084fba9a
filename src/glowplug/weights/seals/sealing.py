"""Sealing a checkpoint, and checking one against its seal: every byte is read once, where it lies.

Memory: the ferry's ring. Small files are read whole, one at a time.
"""

from __future__ import annotations

import hashlib
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import IntegrityError, UsageError
from glowplug.store import open_store
from glowplug.weights.fetch.ferry import RING_BYTES, Piece, cut, ferry
from glowplug.weights.seals.seal import BLOCK_BYTES, DIGEST_BYTES, Seal, SealedFile, SealedSmall, new_hash, sealed_entries
from glowplug.weights.transfer.marker import SEAL_NAME
from glowplug.weights.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from glowplug.weights.base import Checkpoint, FetchStats, Source
    from glowplug.weights.fetch.settings import FetchSettings


class Difference(NamedTuple):
    """Bytes that are not those that were sealed."""

    name: str
    start: int
    end: int
    """First byte after them, counted from the file's begin."""


class Digested(NamedTuple):
    """A checkpoint's digests, and what it cost to make them."""

    seal: Seal
    stats: FetchStats


def digest_checkpoint(
    source: Source,
    checkpoint: Checkpoint,
    *,
    settings: FetchSettings,
    algorithm: str = "sha256",
    block_bytes: int = BLOCK_BYTES,
    ring_bytes: int = RING_BYTES,
    progress: Callable[[int], None] | None = None,
) -> Digested:
    """Read all of a checkpoint and make the seal that fits it, not signed yet. Blocks.

    Args:
        source: where it lies.
        checkpoint: as it was opened there.
        settings: of the fetch.
        algorithm: of the blocks' digests.
        block_bytes: of each block.
        ring_bytes: memory to use.
        progress: told the bytes that were read since the last call; from several threads, one at a time.

    Raises:
        RemoteError: it could not be read, or changed meanwhile.
        IncompatibleError: the algorithm is not installed.
    """
    new = new_hash(algorithm)
    digests = [bytearray(DIGEST_BYTES * -(-(file.size_bytes - file.data_start) // block_bytes)) for file in checkpoint.files]
    lock = threading.Lock()

    def take(piece: Piece, view: memoryview) -> None:
        digest = new()
        digest.update(view)
        block = (piece.start - checkpoint.files[piece.file].data_start) // block_bytes
        digests[piece.file][block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES] = digest.digest()
        if progress is not None:
            with lock:
                progress(view.nbytes)

    pieces = [
        piece for index, file in enumerate(checkpoint.files) for piece in cut(index, file.data_start, file.size_bytes, block_bytes)
    ]
    small = {}
    for entry in sealed_entries(checkpoint):
        data = source.read_small(entry, 0, entry.size_bytes)
        small[entry.name] = SealedSmall(entry.name, entry.size_bytes, hashlib.sha256(data).hexdigest())
    stats = ferry(source, checkpoint.files, pieces, take, settings=settings, ring_bytes=ring_bytes)
    files = tuple(
        SealedFile(file.name, file.size_bytes, file.header_sha256, bytes(digest))
        for file, digest in zip(checkpoint.files, digests, strict=True)
    )
    return Digested(Seal(algorithm, block_bytes, files, MappingProxyType(small)), stats)


def check_checkpoint(
    source: Source,
    checkpoint: Checkpoint,
    seal: Seal,
    *,
    settings: FetchSettings,
    ring_bytes: int = RING_BYTES,
    progress: Callable[[int], None] | None = None,
) -> list[Difference]:
    """Read all of a checkpoint and compare it with its seal. Blocks.

    Args:
        source: where it lies.
        checkpoint: as it was opened there.
        seal: fitted to it.
        settings: of the fetch.
        ring_bytes: memory to use.
        progress: as for ``digest_checkpoint``.

    Returns:
        What differs, in the checkpoint's order; neighbouring blocks as one stretch.

    Raises:
        RemoteError: it could not be read, or changed meanwhile.
    """
    found = digest_checkpoint(
        source,
        checkpoint,
        settings=settings,
        algorithm=seal.algorithm,
        block_bytes=seal.block_bytes,
        ring_bytes=ring_bytes,
        progress=progress,
    ).seal
    differences: list[Difference] = []
    for index, file in enumerate(checkpoint.files):
        for piece in cut(index, file.data_start, file.size_bytes, seal.block_bytes):
            block = (piece.start - file.data_start) // seal.block_bytes
            if found.digest(index, block) != seal.digest(index, block):
                if differences and differences[-1].name == file.name and differences[-1].end == piece.start:
                    differences[-1] = differences[-1]._replace(end=piece.end)
                else:
                    differences.append(Difference(file.name, piece.start, piece.end))
    differences += [
        Difference(name, 0, small.size_bytes) for name, small in sorted(found.others.items()) if seal.others[name] != small
    ]
    return differences


def write_seal(source: Source, document: bytes, *, env: Mapping[str, str], folder: Path | None) -> str:
    """Put a signed seal beside a checkpoint; returns its full name.

    Args:
        source: where the checkpoint lies.
        document: the signed envelope.
        env: for the store's credentials.
        folder: of a checkpoint on this machine; None for one in a store.

    Raises:
        UsageError: nothing can be written there.
        RemoteError: the store refused.
        LocalError: the folder can't be written.
    """
    if folder is None:
        store = open_store(source.uri, env=env)
        store.put(SEAL_NAME, document)
        return f"{source.uri.rstrip('/')}/{SEAL_NAME}"
    path = folder / SEAL_NAME
    write_whole(path, document, again="seal again")
    return str(path)


def refuse_unwritable(uri: str) -> None:
    """Say at once that a checkpoint can't be sealed where it lies.

    Raises:
        UsageError: it is read over HTTP, or is one file.
    """
    if uri.startswith(("http://", "https://")):
        hint = "seal it where it is written: s3://..., or a folder"
        raise UsageError(f"{uri}: a seal can't be written over HTTP", object=uri, hint=hint)
    if uri.endswith(".safetensors"):
        hint = f"seal its folder, {uri.rpartition('/')[0] or '.'}; loads of one file are held to that seal"
        raise UsageError(f"{uri}: a seal is for a folder, not for one file", object=uri, hint=hint)


def refusal(differences: list[Difference], name_of: Callable[[str], str]) -> IntegrityError:
    """The error for what differs: names the first stretch, and counts the others."""
    first = differences[0]
    more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    where = name_of(first.name)
    what = f"{where}: bytes {first.start} to {first.end - 1} are not those that were sealed{more}"
    return IntegrityError(what, object=where, hint="fetch the file again from where it came from")
