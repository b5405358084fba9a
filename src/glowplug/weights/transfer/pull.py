"""From a source to a folder: a whole checkpoint, resumable and verified, each file in its place only when it is whole.

Why not any copying tool: it would know nothing of seals, leave half a file under its final name, or begin a 140 GB file again after
a broken connection. Here the fetcher of a load does the fetching, every stretch is compared with the seal before it is written, and
what is on disk stays there for the next attempt (``pull_journal.py``).

Memory: the ferry's ring. Never replaces a file that no pull has put there, unless it is told to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.errors import IntegrityError, LocalError, ObjectChanged, UnknownKey, Unsigned
from glowplug.weights.base import Entry
from glowplug.weights.fetch.ferry import RING_BYTES, Piece, ferry
from glowplug.weights.seals.loading import load_seal
from glowplug.weights.seals.seal import MAX_SEAL_BYTES, Seal
from glowplug.weights.transfer.marker import COMPLETE_NAME, SEAL_NAME, MarkedFile, Marker
from glowplug.weights.transfer.pull_digests import pushed_digests
from glowplug.weights.transfer.pull_disk import Disk, PartFile
from glowplug.weights.transfer.pull_folder import (
    BY_DIGESTS,
    BY_HEADERS,
    BY_SEAL,
    is_complete,
    marker_of,
    placed_files,
    remove_old,
)
from glowplug.weights.transfer.pull_journal import Journal
from glowplug.weights.transfer.pull_target import refuse_inside
from glowplug.weights.transfer.pull_wanted import Wanted, wanted_files
from glowplug.weights.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import Checkpoint, FetchStats, Source, WeightFile
    from glowplug.weights.fetch.settings import FetchSettings

_AGAIN = "pull again"


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did.

    Attributes:
        files: number of files of the checkpoint.
        size_bytes: of all of them.
        fetched_bytes: that came over the network now.
        verified: what they were compared with, ``BY_SEAL``, ``BY_DIGESTS`` or ``BY_HEADERS``.
        note: why not with the seal, where there is one; else empty.
        complete: everything was there already: nothing was changed.
        seconds: all in all.
        stats: of the fetch; None if there was nothing to fetch.
    """

    files: int
    size_bytes: int
    fetched_bytes: int
    verified: str
    note: str
    complete: bool
    seconds: float
    stats: FetchStats | None = None


def pull(
    source: Source,
    checkpoint: Checkpoint,
    folder: Path,
    *,
    settings: FetchSettings,
    verify: Callable[[bytes], bytes],
    require_seal: bool = False,
    everything: bool = False,
    force: bool = False,
    sync: bool = True,
    ring_bytes: int = RING_BYTES,
    progress: Callable[[int], None] | None = None,
) -> Pulled:
    """Bring a checkpoint to a folder. Blocks.

    Args:
        source: where it lies.
        checkpoint: as it was opened there.
        folder: made if it is not there.
        settings: of the fetch.
        verify: gives what a trusted key has sealed, or raises ``TrustError``.
        require_seal: refuse a checkpoint that has no seal of a trusted key.
        everything: pull the weight files too that would not be loaded.
        force: replace files that no pull has put there.
        sync: wait for the disk; see ``Disk``.
        ring_bytes: memory to use.
        progress: told the bytes that are there since the last call; from several threads, one at a time.

    Raises:
        UsageError: the folder lies in the one that is to be pulled.
        LocalError: no room, no right to write, foreign files in the way, or another pull at work.
        IntegrityError: a name that must not be written, or bytes that are not those that were sealed.
        TrustError: a seal that was tampered with; or, with ``require_seal``, none that counts.
        RemoteError: the source did not deliver. What has come is kept.
    """
    begun = time.monotonic()
    if source.is_local and not source.is_single:
        refuse_inside(folder, Path(source.name_of(checkpoint.files[0])).parent)
    entries = {entry.name: entry for entry in source.entries()}
    seal, note = _seal(source, checkpoint, verify, required=require_seal)
    digests = pushed_digests(source, entries)
    wanted = wanted_files(source, checkpoint, entries, seal, digests, everything=everything)
    size_bytes = sum(item.file.size_bytes for item in wanted)
    by_digests = all(item.version.sha256 for item in wanted)
    verified = BY_SEAL if seal is not None else BY_DIGESTS if by_digests else BY_HEADERS
    old = marker_of(folder)
    if is_complete(folder, wanted, old, source, verified):
        return Pulled(
            len(wanted), size_bytes, 0, old.verified if old else "", note, complete=True, seconds=time.monotonic() - begun
        )
    journal = Journal(folder, source.uri)
    try:
        there = placed_files(folder, journal, wanted, old, source, force=force)
        job = _Pull(source, folder, journal, [item for item in wanted if item.file.name not in there], seal, progress)
        job.tell(sum(item.file.size_bytes for item in wanted if item.file.name in there))
        stats = job.run(settings, ring_bytes=ring_bytes, sync=sync)
        remove_old(folder, journal, wanted)
        if SEAL_NAME in entries and entries[SEAL_NAME].size_bytes <= MAX_SEAL_BYTES:
            entry = entries[SEAL_NAME]
            write_whole(folder / SEAL_NAME, source.read_small(entry, 0, entry.size_bytes), again=_AGAIN, sync=sync)
        files = tuple(MarkedFile(item.file.name, item.file.size_bytes, etag=item.file.etag) for item in wanted)
        write_whole(folder / COMPLETE_NAME, Marker(files, source.uri, verified).document(), again=_AGAIN, sync=sync)
    except BaseException:
        journal.close()  # which removes it, if it knows nothing
        raise
    journal.remove()
    return Pulled(len(wanted), size_bytes, job.fetched_bytes, verified, note, False, time.monotonic() - begun, stats)  # noqa: FBT003


class _Pull:
    """One pull at work."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        journal: Journal,
        wanted: list[Wanted],
        seal: Seal | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.fetched_bytes = 0
        self._source = source
        self._folder = folder
        self._journal = journal
        self._wanted = wanted
        self._seal = seal
        self._sealed = {sealed.name: index for index, sealed in enumerate(seal.files)} if seal else {}
        self._progress = progress
        self._lock = threading.Lock()

    def run(self, settings: FetchSettings, *, ring_bytes: int, sync: bool) -> FetchStats:
        files = [item.file for item in self._wanted]
        pieces: list[Piece] = []
        parts: list[PartFile] = []
        for index, item in enumerate(self._wanted):
            done = self._journal.begin(item.file.name, item.version).done
            if done and not self._journal.part(item.file.name).exists():
                done.clear()  # somebody has removed it
            missing = [piece for piece in item.pieces if (piece.start, piece.end) not in done]
            self.tell(item.file.size_bytes - sum(piece.end - piece.start for piece in missing))
            pieces += [piece._replace(file=index) for piece in missing]
            parts.append(
                PartFile(
                    item.file.name,
                    self._folder / item.file.name,
                    item.file.size_bytes,
                    len(missing),
                    item.version.sha256,
                    self._source.name_of(item.file),
                )
            )
        disk = Disk(self._folder, self._journal, parts, sync=sync)
        disk.reserve()
        with contextlib.suppress(OSError):
            os.unlink(self._folder / COMPLETE_NAME)  # from now on this is no complete checkpoint
        disk.open()

        def take(piece: Piece, view: memoryview) -> None:
            file = files[piece.file]
            if not self._is_good(file, piece, view):
                view = memoryview(
                    self._source.read_small(Entry(file.name, file.size_bytes, file.etag), piece.start, piece.end - piece.start)
                )
                if not self._is_good(file, piece, view):
                    raise self._bad(file, piece)
            disk.write(file.name, piece.start, view)
            with self._lock:
                self.fetched_bytes += view.nbytes
            self.tell(view.nbytes)

        try:
            stats = ferry(self._source, files, pieces, take, settings=settings, ring_bytes=ring_bytes)
        except BaseException:
            with contextlib.suppress(LocalError):  # the first error is the one to tell
                disk.close()
            raise
        disk.close()
        return stats

    def tell(self, size_bytes: int) -> None:
        if self._progress is not None and size_bytes:
            with self._lock:
                self._progress(size_bytes)

    def _is_good(self, file: WeightFile, piece: Piece, view: memoryview) -> bool:
        """Whether these are the bytes that they should be, as far as it is known."""
        if file.header_sha256 and piece.end == file.data_start:
            return hashlib.sha256(view).hexdigest() == file.header_sha256
        if self._seal is None:
            return True
        if not file.header_sha256:
            small = self._seal.others.get(file.name)
            return small is None or hashlib.sha256(view).hexdigest() == small.sha256
        return self._seal.check(self._sealed[file.name], (piece.start - file.data_start) // self._seal.block_bytes, [view])

    def _bad(self, file: WeightFile, piece: Piece) -> IntegrityError | ObjectChanged:
        where = self._source.name_of(file)
        if piece.end == file.data_start and file.header_sha256:
            return ObjectChanged(f"{where}: its header has changed since the pull began", object=where, hint="pull again")
        hint = "publish the checkpoint again, or seal it anew if it was changed on purpose"
        return IntegrityError(
            f"{where}: bytes {piece.start} to {piece.end - 1} are not those that were sealed", object=where, hint=hint
        )


def _seal(source: Source, checkpoint: Checkpoint, verify: Callable[[bytes], bytes], *, required: bool) -> tuple[Seal | None, str]:
    """The seal, or why there is none that counts."""
    try:
        seal = load_seal(source, checkpoint, verify)
    except (UnknownKey, Unsigned) as error:
        if required:
            raise
        return None, error.line()
    if seal is None and required:
        raise Unsigned(f"{source.uri} has no {SEAL_NAME}", object=source.uri, hint="seal it: glowplug weights seal FOLDER")
    return seal, ""
