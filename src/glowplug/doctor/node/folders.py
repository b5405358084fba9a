"""What can really be done in a folder: a file is written, renamed, locked and mapped as code there, and removed at once.

Permission bits and mount options say less than a try does: a read-only mount, a quota, another user, a full disk, SELinux and
``noexec`` all end in an error of the same call that an engine would make. A folder that is not there is tried in the nearest one
above it that is; it is not made. A network file system that does not answer is given up after eight seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from glowplug.doctor.node.background import Background
from glowplug.doctor.node.facts import Folder
from glowplug.doctor.node.files import on
from glowplug.doctor.node.mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.node.disks import Disks
    from glowplug.doctor.node.facts import Mount, Step

_MARK = ".glowplug-doctor-"
_MOST_ENTRIES = 2000
_DEEPEST = 12
_MOUNTPOINT = "mountpoint-s3"
_LONGEST_S = 8.0
_SILENT = "its file system does not answer"


def look_at(path: str, *, root: str, mounts: tuple[Mount, ...], disks: Disks, write: bool = True) -> Folder:
    """Everything about a folder.

    Args:
        path: absolute; need not exist.
        root: what stands before it; a test's own tree.
        mounts: the mount table.
        disks: the machine's.
        write: whether to try what an engine does; else it is only read.
    """
    look = Background(lambda: _look_at(path, root, mounts, disks, write=write))
    if look.ended(_LONGEST_S) and look.value is not None:
        return look.value
    return Folder(path, path, mount=mount_of(path, mounts), refused=(("write", _SILENT),))


def _look_at(path: str, root: str, mounts: tuple[Mount, ...], disks: Disks, *, write: bool) -> Folder:
    tried = nearest(path, root)
    inside = _within(os.path.realpath(on(root, tried)), root)
    mount = mount_of(inside, mounts)
    device, found = disks.under(mount) if mount is not None else ("", ())
    size = free = inodes = free_inodes = 0
    with contextlib.suppress(OSError):
        stats = os.statvfs(on(root, tried))
        size, free = stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
        inodes, free_inodes = stats.f_files, stats.f_favail
    return Folder(
        path=path,
        tried=tried,
        mount=mount,
        device=device,
        disks=found,
        size_bytes=size,
        free_bytes=free,
        inodes=inodes,
        free_inodes=free_inodes,
        refused=tuple(_tries(on(root, tried), mount)) if write else (),
        hollow=tried == path and _is_hollow(on(root, path)),
    )


def nearest(path: str, root: str = "/") -> str:
    """The path, or the nearest one above it that exists."""
    while path not in {"", "/"} and not os.path.lexists(on(root, path)):
        path = os.path.dirname(path)
    return path or "/"


def write_refused(folder: str) -> str:
    """Why no file can be made in a folder; empty if one was, and is gone again."""
    tries = Background(lambda: dict(_tries(folder, None)))
    return (tries.value or {}).get("write", "") if tries.ended(_LONGEST_S) else _SILENT


def _within(place: str, root: str) -> str:
    top = os.path.realpath(root)
    return "/" + place.removeprefix(top).lstrip("/")


def _tries(folder: str, mount: Mount | None) -> Iterator[tuple[Step, str]]:
    if mount is not None and mount.source == _MOUNTPOINT:
        yield "rename", "Mountpoint for Amazon S3 can't rename"  # nor always remove: what was tried would stay in the bucket
        return
    try:
        work = tempfile.mkdtemp(prefix=_MARK, dir=folder)
    except OSError as error:
        yield "write", _reason(error)
        return
    try:
        yield from _steps(os.path.join(work, "a"), os.path.join(work, "b"))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _steps(first: str, second: str) -> Iterator[tuple[Step, str]]:
    try:
        with open(first, "xb") as file:
            file.write(b"\0" * mmap.PAGESIZE)
            file.flush()
            os.fsync(file.fileno())  # a full disk, a quota and a server speak up here at the latest
    except OSError as error:
        yield "write", _reason(error)
        return
    name = first
    try:
        os.rename(first, second)
        name = second
    except OSError as error:
        yield "rename", _reason(error)
    with open(name, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            yield "lock", _reason(error)
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except OSError as error:
            yield "map", _reason(error)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _is_hollow(folder: str) -> bool:
    """Whether there are folders in it, and no file but our own notes. False where it is too large to tell."""
    folders, entries = 0, 0
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as found:
                for entry in found:
                    entries += 1
                    if entries > _MOST_ENTRIES or depth > _DEEPEST:
                        return False
                    if entry.name.startswith(".glowplug"):
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        return False
                    folders += 1
                    waiting.append((entry.path, depth + 1))
        except OSError:
            return False
    return folders > 0
