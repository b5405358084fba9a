"""A folder on the node in which several wrappers keep packs and manifests, one beside the other: its files and its size.

Every file appears whole, by a rename, and never changes; a pack is written by one process at a time, told by the lock on its
temporary file. When there is no room, what has not been used for longest goes; an engine's wrapper that reads it meanwhile has it
open. Nothing here is believed: who reads checks signature and digest, and a file that is not what it should be is taken for none.

Whoever else could write here could still waste our time and our disk. So the folder must be private to this user, or root's, and
then it is only read; and no link is followed in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from glowplug import temporary
from glowplug.errors import LocalError
from glowplug.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind: TypeAlias = Literal["packs", "generations", "latest"]
KINDS: tuple[Kind, ...] = ("packs", "generations", "latest")
DEFAULT_BYTES = 20_000_000_000
SPARE = 0.15
"""The part of the disk that stays free. The kubelet evicts pods when less than a tenth is free, and removes images before."""

_TEMPORARY = "tmp"
_NAME = re.compile(r"[0-9a-f]{64}(\.tar\.zst|\.json)?")
_PART = re.compile(r"[0-9a-f]{64}(\.tar\.zst|\.json)?(\.[0-9a-f]+)?\.part")
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file that is kept.

    Attributes:
        kind: which folder it lies in.
        name: its name there.
        size_bytes: what it takes of the disk.
        used_s: when it was last used, by this machine's clock.
    """

    kind: Kind
    name: str
    size_bytes: int
    used_s: float


class NodeFolder:
    """The folder, open. Thread-safe. Keeps four descriptors until it is closed or collected.

    Args:
        path: where it is; made, private, if it is missing.
        max_bytes: what all files together may take.
        spare: the part of the disk that stays free, 0 to 1.

    Raises:
        LocalError: it can't be made, or others can write there.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_BYTES, spare: float = SPARE) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._spare = spare
        self._folders: dict[str, int] = {}
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _check_private(root, str(path))
                for name in (*KINDS, _TEMPORARY):
                    self._folders[name] = _open_folder(root, name, str(path))
            finally:
                os.close(root)
        except OSError as error:
            self.close()
            raise LocalError(
                f"cannot use the node store {path}: {error.strerror or error}",
                object=str(path),
                hint="name a folder of this node that only this user can write to with --node-store",
            ) from None

    def close(self) -> None:
        """Let go of its descriptors. May be called twice."""
        while self._folders:
            os.close(self._folders.popitem()[1])

    def __del__(self) -> None:
        self.close()

    def open_file(self, kind: Kind, name: str) -> int | None:
        """A descriptor to read a file from, the caller's to close; None where there is none that may be read."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._folders[kind])
        except OSError:
            return None
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and info.st_uid in {os.geteuid(), 0} and not info.st_mode & _FOR_OTHERS:
            return descriptor
        os.close(descriptor)
        return None

    def read(self, kind: Kind, name: str, *, most_bytes: int) -> bytes | None:
        """A small file's content; None where there is none, or a larger one."""
        descriptor = self.open_file(kind, name)
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file, contextlib.suppress(OSError):
            if os.fstat(descriptor).st_size <= most_bytes:
                return file.read(most_bytes)
        return None

    def write(self, kind: Kind, name: str, data: bytes) -> None:
        """Keep a small file. What can't be written is not kept, and nothing is raised."""
        part = f"{name}.{os.getpid():x}{time.monotonic_ns():x}.part"
        with contextlib.suppress(OSError):
            temporary.sweep(self._within(_TEMPORARY, ""), _PART)
            with open(temporary.create(self._within(_TEMPORARY, part), 0o600), "wb") as file:
                try:
                    file.write(data)
                    file.flush()
                    self.show(part, kind, name)  # while it is held: what nobody holds may be swept
                except OSError:
                    self.discard(part)

    def drop(self, kind: Kind, name: str) -> None:
        """Keep a file no longer; none there is no error, nor is one that can't be removed."""
        self._unlink(kind, name)

    def touch(self, kind: Kind, name: str) -> None:
        """It is used now."""
        with contextlib.suppress(OSError):
            os.utime(name, dir_fd=self._folders[kind], follow_symlinks=False)

    def begin(self, name: str, size_bytes: int) -> Filling | None:
        """Begin to write a pack; None where another process does.

        Raises:
            LocalError: there is no room for it.
        """
        try:
            disk = os.fstatvfs(self._folders["packs"])
            room = max(0, int(disk.f_bavail * disk.f_frsize - self._spare * disk.f_blocks * disk.f_frsize))
            if size_bytes > min(self.max_bytes, room):
                limit = "--node-store-size" if size_bytes > self.max_bytes else f"the {self._spare:.0%} of its disk that stay free"
                raise LocalError(
                    f"the node store {self.path} has no room for a pack of {format_bytes(size_bytes)}, by {limit}",
                    object=str(self.path),
                    hint="free space on its disk, or name another folder with --node-store",
                )
            temporary.sweep(self._within(_TEMPORARY, ""), _PART)
            return Filling(self, name, size_bytes, temporary.create(self._within(_TEMPORARY, f"{name}.part"), 0o600))
        except OSError:  # FileExistsError: somebody else is at it
            return None

    def files(self) -> list[NodeFile]:
        """What is kept, the longest unused first. What vanishes meanwhile is left out."""
        found = [file for kind in KINDS for file in self._list(kind)]
        return sorted(found, key=lambda file: file.used_s)

    def excess(self, max_bytes: int) -> list[NodeFile]:
        """What must go so that no more than so many bytes are kept: the longest unused."""
        kept = self.files()
        size_bytes = sum(file.size_bytes for file in kept)
        gone = []
        for file in kept:
            if size_bytes <= max_bytes:
                break
            gone.append(file)
            size_bytes -= file.size_bytes
        return gone

    def evict(self, files: list[NodeFile]) -> None:
        """Remove files, and what killed processes have left. Raises LocalError where that is not allowed."""
        temporary.sweep(self._within(_TEMPORARY, ""), _PART)
        for file in files:
            try:
                os.unlink(file.name, dir_fd=self._folders[file.kind])
            except FileNotFoundError:
                continue
            except OSError as error:
                path = str(self.path / file.kind / file.name)
                raise LocalError(f"cannot remove {path}: {error.strerror}", object=path, hint="see its folder's owner") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all who make room. Held for a few calls on names."""
        descriptor = os.open(self._within(_TEMPORARY, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def show(self, part: str, kind: Kind, name: str) -> None:
        """Give a temporary file its name, in place of any other. Raises OSError."""
        os.rename(part, name, src_dir_fd=self._folders[_TEMPORARY], dst_dir_fd=self._folders[kind])

    def discard(self, part: str) -> None:
        """Remove a temporary file."""
        self._unlink(_TEMPORARY, part)

    def _unlink(self, folder: str, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folders[folder])

    def _within(self, folder: str, name: str) -> str:
        """A path that leads into the folder that was opened and checked, whatever has its name by now."""
        return f"/proc/self/fd/{self._folders[folder]}/{name}"

    def _list(self, kind: Kind) -> Iterator[NodeFile]:
        with contextlib.suppress(OSError), os.scandir(self._folders[kind]) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat(follow_symlinks=False)
                        yield NodeFile(kind, entry.name, info.st_size, info.st_mtime)


class Filling:
    """A pack on its way into the folder, for several threads. Until ``install`` nobody sees it."""

    def __init__(self, folder: NodeFolder, name: str, size_bytes: int, descriptor: int) -> None:
        self._folder = folder
        self._name = name
        self.descriptor = descriptor
        self.size_bytes = size_bytes

    def write(self, start: int, data: memoryview) -> None:
        """Bytes from ``start`` on. Raises OSError."""
        while data:
            count = os.pwrite(self.descriptor, data, start)
            start, data = start + count, data[count:]

    def install(self) -> None:
        """Make room, and let it be seen. Raises OSError."""
        with self._folder.locked():
            with contextlib.suppress(LocalError):
                self._folder.evict(self._folder.excess(self._folder.max_bytes - self.size_bytes))
            self._folder.show(f"{self._name}.part", "packs", self._name)
        os.close(self.descriptor)

    def abandon(self) -> None:
        """It will not be complete."""
        self._folder.discard(f"{self._name}.part")
        os.close(self.descriptor)


def _open_folder(root: int, name: str, path: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=root)
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        _check_private(descriptor, f"{path}/{name}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_private(descriptor: int, path: str) -> None:
    info = os.fstat(descriptor)
    if info.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(f"{path} belongs to uid {info.st_uid}, and this process is uid {os.geteuid()}")
    if info.st_mode & _FOR_OTHERS:
        raise PermissionError(f"{path} can be written by others than uid {os.geteuid()}")
