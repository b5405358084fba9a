"""Restore: a verified generation becomes a live cache tree, whole or not at all.

The pack is streamed, each file is written into a staging folder beside its place, and its digest is checked. Files of the live
tree that the generation does not name are this node's own; they are linked into the staged tree, which then takes the live one's
place, folder by folder: one rename aside and one into place for each family. A restore that fails, or is called off, leaves the
live tree as it was. Nothing is ever written through a link, and none is kept. Where an engine may be using the tree already, whole
files are moved into it one by one instead (``placing``).

Nothing is synced to the disk. That a tree survived is believed only within one boot of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.cache.fetch import ObjectStream
from glowplug.cache.live import sweep
from glowplug.cache.placing import place, states, swap
from glowplug.cache.quarantine.traces import remember
from glowplug.cache.tree import walk
from glowplug.cache.unpack import make_folders, unpack
from glowplug.errors import LocalError
from glowplug.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import Manifest
    from glowplug.store.base import Store

_SPARE_BYTES = 16 * 1024 * 1024  # what must stay free on the disk, besides the files themselves
_NOTES = ".glowplug"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore brought."""

    generation: str
    """Digest of the generation that now lies in the tree."""
    files: int
    """Files of the generation."""
    bytes: int
    """Their bytes."""
    fetched: bool
    """False if the tree held the generation already, from an earlier start on this node."""


def restore(
    store: Store,
    pack_key: str,
    manifest: Manifest,
    root: Path,
    *,
    deadline: Deadline,
    progress: Callable[[int], None] = lambda _: None,
    in_use: Callable[[], bool] = lambda: False,
) -> Restored:
    """Put a generation's files under ``root``.

    Args:
        store: where the pack is.
        pack_key: the pack's key.
        manifest: verified by the caller.
        root: the live tree; exists and is private to this process.
        deadline: checked between pieces; after it has been cancelled nothing becomes visible.
        progress: told how many unpacked bytes have been written since the last call; called from several threads.
        in_use: asked once, when all is staged: whether an engine may be using the tree. It may raise to call the restore off.

    Raises:
        IntegrityError: the pack is not what the manifest says.
        RemoteError: the store did not deliver.
        LocalError: the disk is full or the folder can't be written.
        DeadlineExceeded: the time is up.
    """
    done = Restored(manifest.digest, len(manifest.files), manifest.size_bytes, fetched=True)
    if _already_there(root, manifest):
        return Restored(done.generation, done.files, done.bytes, fetched=False)
    sweep(root)
    check_space(root, manifest.size_bytes)
    staging = root / _NOTES / f"staging-{uuid.uuid4().hex}"
    families = sorted({entry.path.partition("/")[0] for entry in manifest.files})
    before = states(root, (entry.path for entry in manifest.files))
    note = root / _NOTES / "installed.json"
    try:
        with _local_errors(root):
            make_folders(str(staging / "old"), set())
            with ObjectStream(store, pack_key, manifest.pack.size_bytes, deadline=deadline) as source:
                unpack(manifest.files, source, staging / "new", name=pack_key, deadline=deadline, progress=progress)
            (staging / note.name).write_bytes(_note(manifest))
            remember(root, manifest.digest, manifest.signer)
            if in_use():
                with deadline.commit():
                    note.unlink(missing_ok=True)
                    if not place((entry.path for entry in manifest.files), staging / "new", root, before):
                        os.rename(staging / note.name, note)
            else:
                _keep_own_files(root, staging / "new", families)
                with deadline.commit():
                    note.unlink(missing_ok=True)
                    swap(staging, root, families, note)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return done


class _local_errors:  # noqa: N801  used like a function, as contextlib's are
    """Turns OSError into one that names the folder and the remedy."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
            raise LocalError(
                f"cannot write the cache folder {self._root}: {error.strerror or error}",
                object=str(self._root),
                hint="free space on its disk, or name another folder with --cache-dir" if full else "see --cache-dir",
            ) from error


def check_space(root: Path, size_bytes: int) -> None:
    """Refuse to fill a disk. Raises LocalError if it has no room for so many bytes and a little more."""
    try:
        disk = os.statvfs(root)
    except OSError as error:
        raise LocalError(f"cannot use the cache folder {root}: {error.strerror}", object=str(root)) from None
    free = disk.f_bavail * disk.f_frsize
    if free < size_bytes + _SPARE_BYTES:
        raise LocalError(
            f"the cache needs {format_bytes(size_bytes)}, and {root} has {format_bytes(free)} free",
            object=str(root),
            hint="free space on its disk, or name another folder with --cache-dir",
        )


def _keep_own_files(root: Path, new: Path, families: Sequence[str]) -> None:
    """Link every plain file of the live tree that the generation does not name into the staged one."""
    made: set[str] = set()
    for family in families:
        for relative, _ in walk(os.path.join(root, family)):
            target = os.path.join(new, family, relative)
            # Where a path is a file in one tree and a folder in the other, the generation's counts.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                make_folders(os.path.dirname(target), made)
                os.link(os.path.join(root, family, relative), target, follow_symlinks=False)


def _already_there(root: Path, manifest: Manifest) -> bool:
    """Whether an earlier start on this node left exactly this generation, and the machine has not crashed since."""
    try:
        notes = json.loads((root / _NOTES / "installed.json").read_bytes())
    except (OSError, ValueError):
        return False
    if not _boot_id() or notes != {"generation": manifest.digest, "boot": _boot_id()}:
        return False
    for entry in manifest.files:
        try:
            info = os.stat(os.path.join(root, entry.path), follow_symlinks=False)
        except OSError:
            return False
        if (info.st_size, info.st_mtime_ns) != (entry.size_bytes, entry.mtime_ns):
            return False
    return True


def _note(manifest: Manifest) -> bytes:
    return json.dumps({"generation": manifest.digest, "boot": _boot_id()}).encode()


def _boot_id() -> str:
    """Changes when the machine restarts: files that were never synced may then be empty, though their metadata looks right."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""  # unknown, and then nothing is believed
