"""From a folder to a store: a whole checkpoint, with what is there already left alone, and the complete marker last.

Why not any copying tool: it would upload a checkpoint whose shard is missing, overwrite one that a fleet is loading, and leave
nobody a way to tell a whole upload from half of one. Here the checkpoint is opened first, nothing is replaced unless that was asked
for, each file's digest goes with it, and an interrupted push goes on where it stopped, down to the parts of a file.

Memory: 8 MiB for each file that is being read, 1 MiB for each connection. Nothing is deleted but an old complete marker.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from glowplug.errors import IntegrityError
from glowplug.weights.checkpoint.small_files import is_small_file
from glowplug.weights.fetch.crew import each
from glowplug.weights.seals.document import seal_document
from glowplug.weights.seals.seal import BLOCK_BYTES, Seal, SealedFile, SealedSmall
from glowplug.weights.transfer.digests import FileDigests, digest_file
from glowplug.weights.transfer.marker import COMPLETE_NAME, MAX_MARKER_BYTES, SEAL_NAME, MarkedFile, Marker, parse_marker
from glowplug.weights.transfer.push_items import PushItem, push_items, refuse_others, strays
from glowplug.weights.transfer.push_targets import Target, target_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from glowplug.store.base import ObjectInfo, Store
    from glowplug.weights.base import Checkpoint

CONNECTIONS = 16
"""Requests at once, where the user says nothing."""
_FILES_AT_ONCE = 4


class Sealing(NamedTuple):
    """That the checkpoint is to be sealed, and how."""

    sign: Callable[[bytes], bytes]
    """Gives the signed envelope of a payload."""
    algorithm: str = "sha256"
    block_bytes: int = BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class PushedFile:
    """One file, and what became of it.

    Attributes:
        name: relative to the checkpoint.
        size_bytes: its length.
        sha256: hex digest; empty in a dry run for what would be sent.
        state: it was sent, it was there already, or (in a dry run) it would be sent.
        kept_bytes: of a file that was sent: what an earlier attempt had sent.
    """

    name: str
    size_bytes: int
    sha256: str
    state: Literal["sent", "there", "to send"]
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        files: weights first.
        sealed: a seal was written.
        marked: a complete marker was written.
        complete: the marker lies there, and did so before: nothing was changed.
        left: weight files at the target that are no part of the checkpoint.
        seconds: all in all.
    """

    files: tuple[PushedFile, ...]
    sealed: bool
    marked: bool
    complete: bool
    left: tuple[str, ...]
    seconds: float

    @property
    def size_bytes(self) -> int:
        """Of the checkpoint."""
        return sum(file.size_bytes for file in self.files)

    @property
    def sent_bytes(self) -> int:
        """That were sent now."""
        return sum(file.size_bytes - file.kept_bytes for file in self.files if file.state == "sent")


def push(
    checkpoint: Checkpoint,
    folder: Path,
    store: Store,
    *,
    sealing: Sealing | None = None,
    seal: bytes | None = None,
    force: bool = False,
    dry_run: bool = False,
    connections: int = CONNECTIONS,
    progress: Callable[[int], None] | None = None,
) -> Pushed:
    """Bring a checkpoint into a store. Blocks; raises nothing before the checkpoint is known to be whole and its names to be keys.

    Args:
        checkpoint: as it was opened in ``folder``.
        folder: where its files lie; links are followed.
        store: its prefix becomes the checkpoint's.
        sealing: seal it; None leaves it unsealed.
        seal: a signed seal to bring along, known to fit; not with ``sealing``.
        force: replace files of other content, and a complete checkpoint that is another one.
        dry_run: change nothing, and say what would be sent.
        connections: requests at once, over all files.
        progress: told the bytes that are at the target now.

    Raises:
        UsageError: a file's name can't be a key.
        PreconditionFailed: other files lie there, and ``force`` is not set. Nothing was changed.
        LocalError: a file can't be read, or changed meanwhile.
        RemoteError: the store failed; the next call goes on from there.
    """
    begun = time.monotonic()
    job = _Push(store, target_for(store, connections=connections), sealing, progress or _nothing)
    items = push_items(checkpoint, folder)
    present = {info.key: info for info in store.list("")}
    marker = job.marker(present)
    known = job.compare(items, present, marker)
    left = strays(items, set(present))
    if not force:
        refuse_others(store.url, items, set(present), known, marker)
    missing = [item for item in items if known.get(item.name) is None]
    to_seal = sealing is not None or (seal is not None and not job.holds(SEAL_NAME, seal, present))
    complete = marker is not None and not missing and set(marker.by_name) == {item.name for item in items}
    if dry_run or (complete and not to_seal):
        files = tuple(_reported(item, known, "to send") for item in items)
        return Pushed(files, sealed=False, marked=False, complete=complete, left=left, seconds=time.monotonic() - begun)
    if COMPLETE_NAME in present and not complete:
        store.delete(COMPLETE_NAME)  # from now on this is no complete checkpoint
    files = tuple(job.send(items, known))
    if sealing is not None:
        store.put(SEAL_NAME, sealing.sign(seal_document(_seal(items, job.digests, sealing))))
    elif seal is not None and to_seal:
        store.put(SEAL_NAME, seal)
    elif SEAL_NAME in present and missing:
        store.delete(SEAL_NAME)  # of what lay there before; it would make every load of the new content fail
    if not complete:
        store.put(COMPLETE_NAME, Marker(tuple(MarkedFile(file.name, file.size_bytes, file.sha256) for file in files)).document())
    return Pushed(files, sealed=to_seal, marked=not complete, complete=False, left=left, seconds=time.monotonic() - begun)


class _Push:
    """One push: what is known of the files here, and of those at the target."""

    def __init__(self, store: Store, target: Target, sealing: Sealing | None, progress: Callable[[int], None]) -> None:
        self._store = store
        self._target = target
        self._sealing = sealing
        self._progress = progress
        self._lock = threading.Lock()
        self.digests: dict[str, FileDigests] = {}

    def marker(self, present: Mapping[str, ObjectInfo]) -> Marker | None:
        """The complete marker that lies there; None if there is none, or one that is not ours."""
        info = present.get(COMPLETE_NAME)
        if info is None or info.size_bytes > MAX_MARKER_BYTES:
            return None
        with contextlib.suppress(IntegrityError):  # then it says nothing, and is replaced by one that does
            return parse_marker(self._store.get(COMPLETE_NAME).data, name=f"{self._store.url}/{COMPLETE_NAME}")
        return None

    def compare(
        self, items: Sequence[PushItem], present: Mapping[str, ObjectInfo], marker: Marker | None
    ) -> Mapping[str, str | None]:
        """The digest of each file that lies at the target as it lies here; None for each that must be sent."""

        def one(item: PushItem) -> str | None:
            info = present.get(item.name)
            if info is None or info.size_bytes != item.stamp.size_bytes:
                return None
            marked = marker.by_name.get(item.name) if marker is not None else None
            # What was written after the marker is not what the marker tells of.
            fresh = marked is not None and info.modified_s <= present[COMPLETE_NAME].modified_s
            there = marked.sha256 if marked is not None and fresh else ""
            there = there or self._target.digest(item.name, info.size_bytes)
            if not there or there != self._digest(item).sha256:
                return None
            self._tell(info.size_bytes)
            return there

        found = each(one, items, threads=_FILES_AT_ONCE, name="glowplug-compare")
        return {item.name: digest for item, digest in zip(items, found, strict=True)}

    def holds(self, key: str, data: bytes, present: Mapping[str, ObjectInfo]) -> bool:
        """Whether a small object lies there with just this content."""
        return key in present and present[key].size_bytes == len(data) and self._store.get(key).data == data

    def send(self, items: Sequence[PushItem], known: Mapping[str, str | None]) -> Iterable[PushedFile]:
        """Send what is not there: weights first, then the small files."""

        def one(item: PushItem) -> PushedFile:
            if known.get(item.name) is not None:
                return _reported(item, known, "there")
            digests = self._digest(item)
            kept: list[int] = []

            def advance(size_bytes: int, sent: bool) -> None:
                if not sent:
                    kept.append(size_bytes)
                self._tell(size_bytes)

            self._target.upload(item.name, item.path, digests.sha256, advance)
            if item.has_changed:
                raise item.changed()
            return PushedFile(item.name, item.stamp.size_bytes, digests.sha256, "sent", sum(kept))

        for batch in ([item for item in items if item.weights], [item for item in items if not item.weights]):
            yield from each(one, batch, threads=_FILES_AT_ONCE, name="glowplug-push", stop=self._target.stop)

    def _digest(self, item: PushItem) -> FileDigests:
        digests = self.digests.get(item.name)
        if digests is None:
            sealed = self._sealing if item.weights is not None else None
            digests = digest_file(
                item.path,
                algorithm=sealed.algorithm if sealed else None,
                data_start=item.weights.data_start if item.weights else 0,
                block_bytes=sealed.block_bytes if sealed else BLOCK_BYTES,
            )
            if item.has_changed:
                raise item.changed()
            self.digests[item.name] = digests
        return digests

    def _tell(self, size_bytes: int) -> None:
        with self._lock:
            self._progress(size_bytes)


def _seal(items: Sequence[PushItem], digests: Mapping[str, FileDigests], sealing: Sealing) -> Seal:
    files = tuple(
        SealedFile(item.name, item.weights.size_bytes, item.weights.header_sha256, digests[item.name].blocks)
        for item in items
        if item.weights is not None
    )
    small = {
        item.name: SealedSmall(item.name, item.stamp.size_bytes, digests[item.name].sha256)
        for item in items
        if item.weights is None and is_small_file(item.name)
    }
    return Seal(sealing.algorithm, sealing.block_bytes, files, MappingProxyType(small))


def _reported(item: PushItem, known: Mapping[str, str | None], state: Literal["there", "to send"]) -> PushedFile:
    digest = known.get(item.name)
    return PushedFile(item.name, item.stamp.size_bytes, digest or "", "there" if digest else state)


def _nothing(_: int) -> None: ...
