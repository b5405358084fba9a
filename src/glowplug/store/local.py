"""A store in a folder: a disk of this machine, or a file system that several machines mount.

Writes are atomic: content goes to a temporary file in the store's own spool folder and is then renamed (``put``, ``put_file``),
linked (``put_if_absent``: ``link(2)`` fails if the name exists, on NFS as well), or compared and renamed (``put_if_match``),
under an exclusive ``flock``. Everything the store needs for itself lies under ``.glowplug`` in its root and is never listed.

An ETag is made of the inode, the size, and the modification time, whose digits below a millisecond this store draws by chance.
A replacement is always a new inode while the old one still exists, so two successive contents never share an ETag, and no content
need be read to tell it.

It never follows a symbolic link in place of an object, never creates anything on a read, and never calls ``fsync``: what it keeps
is checked by digest or signature whenever it is read, so a write torn by a power failure costs one cold start and no wrong answer.

The root, when this store creates it, is private (0700). Below it the process's umask decides, so that an administrator who makes
the root can share it between users.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import shutil
import stat
from typing import TYPE_CHECKING

from glowplug import temporary
from glowplug.errors import ConditionalWritesUnsupported, LocalError, ObjectChanged, ObjectNotFound, PreconditionFailed, Unreachable
from glowplug.store import local_errors
from glowplug.store.base import MAX_SMALL_BYTES, Blob, ObjectInfo, require_small
from glowplug.store.keys import RESERVED, check_key, check_list_prefix, is_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ANY = re.compile(".*", re.DOTALL)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


class LocalStore:
    """Objects as files below ``root``. Satisfies ``store.base.Store``; it waits for the disk and for its lock only.

    Args:
        root: absolute; created by the first write.
        url: the store as the user wrote it.
    """

    def __init__(self, root: Path, *, url: str) -> None:
        self._root = root
        self._url = url
        self._swept = False

    @property
    def url(self) -> str:
        """As the user wrote it."""
        return self._url

    @property
    def spool(self) -> Path | None:
        """Temporary files, on the same file system as the objects.

        What dead processes left there is removed at the first use.

        Raises:
            Forbidden: the folder can't be created.
        """
        spool = self._reserved("spool")
        if not self._swept:
            self._swept = True
            temporary.sweep(spool, _ANY)
        return spool

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> int | None:
        """See ``Store.read_into``. The bytes go from the page cache into the buffer (``preadv``)."""
        path = self._path(key)
        view = buffer.cast("B")
        if not view.nbytes:
            return None
        with local_errors.named(str(path)), _opened(path) as fd:
            status = os.fstat(fd)
            if if_match is not None and _etag(status) != if_match:
                raise ObjectChanged(f"{path} has changed since it was looked up", object=str(path), hint="look it up again")
            filled = 0
            while filled < view.nbytes:
                count = os.preadv(fd, [view[filled:]], start + filled)
                if not count:
                    ends = f"{path} ends at byte {start + filled}, before the range that was asked for"
                    raise Unreachable(ends, object=str(path), hint="the object is not what was expected; publish it again")
                filled += count
            return status.st_size

    def get(self, key: str, *, most_bytes: int = MAX_SMALL_BYTES) -> Blob:
        """See ``Store.get``."""
        path = self._path(key)
        with local_errors.named(str(path)), _opened(path) as fd, open(fd, "rb", closefd=False) as file:
            status = os.fstat(fd)
            require_small(str(path), status.st_size, most_bytes)
            return Blob(file.read(status.st_size), _etag(status))

    def head(self, key: str) -> ObjectInfo:
        """See ``Store.head``."""
        path = self._path(key)
        with local_errors.named(str(path)):
            try:
                status = os.stat(path, follow_symlinks=False)
            except NotADirectoryError as error:
                raise FileNotFoundError(errno.ENOENT, "no object", str(path)) from error
            _require_file(status, path)
            return _info(key, status)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``. Memory: the names of one directory for each level."""
        check_list_prefix(prefix)
        self._require_folder()
        folder, slash, _ = prefix.rpartition("/")
        return self._walk(folder + slash, prefix)

    def put(self, key: str, data: bytes) -> str:
        """See ``Store.put``."""
        path = self._path(key)
        with local_errors.named(str(path)), self._temporary(data) as written:
            return self._replace(written, path)

    def put_file(self, key: str, path: Path, *, sha256: str) -> str:
        """See ``Store.put_file``. From the spool it is one rename; the file keeps its mode."""
        del sha256  # nothing is signed here
        target = self._path(key)
        try:
            os.stat(path)
        except OSError as error:
            raise LocalError(f"{path}: {error.strerror}", object=str(path)) from error
        with local_errors.named(str(target)):
            spool = self._reserved("spool")
            if path.parent.resolve() == spool.resolve():
                return self._replace(path, target)
            with self._temporary(b"") as written:
                shutil.copyfile(path, written)
                return self._replace(written, target)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """See ``Store.put_if_absent``."""
        path = self._path(key)
        with local_errors.named(str(path)), self._temporary(data) as written:
            etag = _stamp(written)
            try:
                with self._locked():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    os.link(written, path)
            except FileExistsError:
                if _is_in_the_way(path):
                    raise LocalError(f"{path} is no file, and in an object's way", object=str(path), hint="remove it") from None
                raise PreconditionFailed(f"{path} exists already", object=str(path), hint="read it instead") from None
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise ConditionalWritesUnsupported(
                        f"the file system of {self._root} has no hard links, so two writers could overwrite each other",
                        object=self._url,
                        hint="put the store on ext4, XFS, Btrfs, tmpfs or NFS",
                    ) from error
                raise
            return etag

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """See ``Store.put_if_match``."""
        path = self._path(key)
        with local_errors.named(str(path)), self._temporary(data) as written, self._locked():
            try:
                current: str | None = _etag(os.stat(path, follow_symlinks=False))
            except FileNotFoundError:
                current = None
            if current != etag:
                raise PreconditionFailed(f"{path} has changed since it was read", object=str(path), hint="read it again")
            new = _stamp(written)
            os.replace(written, path)
            return new

    def delete(self, key: str) -> None:
        """See ``Store.delete``. Directories that it leaves empty go as well."""
        path = self._path(key)
        with local_errors.named(str(path)):
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return  # nothing to delete needs no lock, hence no right to write
            with self._locked():
                path.unlink(missing_ok=True)
                for parent in path.relative_to(self._root).parents[:-1]:
                    try:
                        os.rmdir(self._root / parent)
                    except OSError:  # not empty, or gone already: someone else's business
                        break

    def _path(self, key: str) -> Path:
        check_key(key)
        self._require_folder()
        return self._root / key

    def _require_folder(self) -> None:
        """No root at all is an empty store; a file in its place is a mistake that must not look like one."""
        try:
            mode = os.stat(self._root).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:  # above all one that may not be looked at, which is no empty store either
            raise local_errors.translate(error, str(self._root)) from error
        if not stat.S_ISDIR(mode):
            hint = "name a folder, or one that does not exist yet"
            raise LocalError(f"{self._root} is a file, and a store is a folder", object=str(self._root), hint=hint)

    def _reserved(self, name: str) -> Path:
        folder = self._root / RESERVED / name
        # os.path's question, unlike Path's, is answered with no where the answer is forbidden; mkdir then says why.
        if not os.path.isdir(folder):
            with local_errors.named(str(folder)):
                _make_root(self._root)
                folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def _temporary(self, data: bytes) -> Iterator[Path]:
        """A file in the spool with this content, gone at the end unless it was renamed."""
        path = (self.spool or self._root) / f"{os.getpid()}-{random.getrandbits(64):016x}"
        with open(temporary.create(path), "wb") as file:
            try:
                file.write(data)
                file.flush()
                yield path
            finally:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all threads and processes that write or delete, so that no folder goes between its making and its first file.

        Held for a few calls on names, never while content is written.
        """
        lock = self._reserved("lock") / "writers"
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _replace(self, source: Path, target: Path) -> str:
        etag = _stamp(source)
        with self._locked():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
        return etag

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        """Files below ``folder`` (empty, or ending in a slash) in key order."""
        try:
            with local_errors.named(str(self._root / folder)), os.scandir(self._root / folder) as entries:
                # "a/b" sorts after "a-b": a directory takes its place with its slash.
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries)
        except ObjectNotFound:
            return
        for name in names:
            key = folder + name
            if key.endswith("/"):
                if is_key(key[:-1]) and (key.startswith(prefix) or prefix.startswith(key)):
                    yield from self._walk(key, prefix)
            elif key.startswith(prefix) and is_key(key):
                with contextlib.suppress(ObjectNotFound):  # deleted, or a link, since the folder was read
                    yield self.head(key)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        # A link or a file where a folder should be: under this name this store has written nothing.
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise FileNotFoundError(errno.ENOENT, "no object", str(path)) from error
        raise
    try:
        _require_file(os.fstat(fd), path)
        yield fd
    finally:
        os.close(fd)


def _is_in_the_way(path: Path) -> bool:
    """Whether something lies there that no store has written; whoever reads it finds no object."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _require_file(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, "no object", str(path))


def _stamp(path: Path) -> str:
    # The file system's clock, which may be a server's, ticks every few milliseconds: too coarse to tell two quick writes apart.
    os.utime(path)
    now_ns = os.stat(path).st_mtime_ns + random.randrange(1_000_000)
    os.utime(path, ns=(now_ns, now_ns))
    return _etag(os.stat(path))


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime)


def _make_root(root: Path) -> None:
    if not os.path.isdir(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
