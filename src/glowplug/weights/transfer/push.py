"""From a folder to a store: a whole checkpoint, with what is there already left alone, and the complete marker last.

Why not any copying tool: it would upload a checkpoint whose shard is missing, overwrite one that a fleet is loading, and leave
nobody a way to tell a whole upload from half of one. Here the checkpoint is opened first, nothing is replaced unless that was asked
for, each file's digest goes with it, and an interrupted push goes on where it stopped, down to the parts of a file. Pushes of
different checkpoints to one place exclude each other (``push_claim.py``), and just before the marker is written all that lies there
is compared once more with what was sent.

Memory: 8 MiB for each file that is being read, 1 MiB for each connection. Nothing is deleted but an old complete
marker, the seal of what is replaced, and the claim.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from glowplug.weights.checkpoint.small_files import is_small_file
from glowplug.weights.seals.document import seal_document
from glowplug.weights.seals.seal import Seal, SealedFile, SealedSmall
from glowplug.weights.transfer.marker import (
    PUSHING_NAME,
    SEAL_NAME,
    MarkedFile,
    Marker,
)
from glowplug.weights.transfer.pull_target import refuse_inside, target_folder
from glowplug.weights.transfer.push_claim import Claim
from glowplug.weights.transfer.push_items import dangling_links, push_items, strays
from glowplug.weights.transfer.push_job import PushJob, Sealing, reported
from glowplug.weights.transfer.push_targets import target_for
from glowplug.weights.transfer.pushed import Pushed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from glowplug.store.base import Store
    from glowplug.weights.base import Checkpoint
    from glowplug.weights.transfer.digests import FileDigests
    from glowplug.weights.transfer.push_items import PushItem

CONNECTIONS = 16
"""Requests at once, where the user says nothing."""
_UNCLAIMED = (
    "the store makes no conditional writes, so nothing keeps another push away while one is at work; "
    "all files were compared once more before the marker was written"
)


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
        UsageError: a file's name can't be a key, or the store lies in the folder.
        PreconditionFailed: other files lie there, and ``force`` is not set. Nothing was changed.
        LocalError: a file can't be read, or changed meanwhile.
        RemoteError: the store failed; the next call goes on from there.
    """
    begun = time.monotonic()
    if store.url.startswith("file://") or "://" not in store.url:
        refuse_inside(target_folder(store.url), folder)
    job = PushJob(
        store, target_for(store, connections=connections), sealing, progress or _nothing, folder_name=folder.resolve().name
    )
    items = push_items(checkpoint, folder)
    notes = tuple(f"{folder / name} is a link that leads nowhere, and was left out" for name in dangling_links(folder))
    there = job.look(items, force=force)
    to_seal = sealing is not None or (seal is not None and not job.holds(SEAL_NAME, seal, there.present))
    if dry_run or (there.complete and not to_seal):
        if PUSHING_NAME in there.present and not dry_run:
            Claim(store, job.content(items)).release()  # a push that died between its marker and this
        files = tuple(reported(item, there.known, "to send") for item in items)
        left = strays(items, set(there.present))
        return Pushed(
            files, sealed=False, marked=False, complete=there.complete, left=left, seconds=time.monotonic() - begun, notes=notes
        )
    claim = Claim(store, job.content(items))
    claim.take(force=force)
    try:
        there = job.look(items, force=force, again=True)  # what another push did before the claim was ours
        files = job.bring(items, there, claim)
        files = job.settle(items, files, claim, force=force)
        if sealing is not None:
            seal = sealing.sign(seal_document(_seal(items, job.digests, sealing)))
        if seal is not None and to_seal:
            store.put(SEAL_NAME, seal)
        if not there.complete:
            marked = tuple(MarkedFile(file.name, file.size_bytes, file.sha256) for file in files)
            job.mark(Marker(marked).document(), claim, seal if to_seal else None)
    except BaseException as error:
        job.give_up(claim, error)
        raise
    if claim.is_supported:
        claim.release()
    return Pushed(
        files, to_seal, not there.complete, complete=False, left=strays(items, set(there.present)),
        seconds=time.monotonic() - begun, notes=notes if claim.is_supported else (*notes, _UNCLAIMED),
    )  # fmt: skip


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


def _nothing(_: int) -> None: ...
