"""A checkpoint in a folder of this machine, or one file of it: a disk, a mount, or a snapshot in the Hugging Face cache.

Links are followed, since such a snapshot is made of them. Every read opens the file, and compares inode, size and modification
time with those that were listed, before and after: a file that is replaced or rewritten under a load is an error, not a mixture.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, ObjectChanged, ObjectNotFound
from glowplug.store import local_errors
from glowplug.weights.base import Retry
from glowplug.weights.sources import page_cache
from glowplug.weights.sources.direct import ALIGNMENT_BYTES, DirectReading, is_aligned, stretch
from glowplug.weights.sources.local_folder import entry_of, etag_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from glowplug.weights.base import Entry, Meter, WeightFile
    from glowplug.weights.sources.direct import Direct

_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR}  # a mount that was away for a moment


class LocalSource:
    """Files below a folder, or one file. Satisfies ``weights.base.Source``; keeps nothing open.

    Args:
        path: the folder, or the file; a relative one starts at the current folder.
        uri: what the user wrote; default: the path.
        direct: whether to read past the page cache; see ``sources.direct``.
    """

    def __init__(self, path: str | Path, *, uri: str | None = None, direct: Direct = "auto") -> None:
        self._path = os.path.abspath(path)
        self._uri = os.fspath(path) if uri is None else uri
        self._is_file = os.path.isfile(self._path)
        self._root = os.path.dirname(self._path) if self._is_file else self._path
        self._direct = DirectReading(direct)

    @property
    def uri(self) -> str:
        """See ``Source.uri``."""
        return self._uri

    @property
    def is_local(self) -> bool:
        """Yes."""
        return True

    @property
    def is_single(self) -> bool:
        """See ``Source.is_single``."""
        return self._is_file

    def entries(self) -> list[Entry]:
        """See ``Source.entries``; ``local_folder.walk`` says how deep it goes and what it leaves out."""
        if not os.path.lexists(self._path):
            raise ObjectNotFound(f"there is no file or folder {self._path}", object=self._path, hint="check the path")
        with local_errors.named(self._path):
            if self._is_file:
                return [entry_of(os.path.basename(self._path), os.stat(self._path))]
            if not os.path.isdir(self._path):
                os.stat(self._path)  # says why
                raise LocalError(f"{self._path} is neither a folder nor a file", object=self._path)
        found = sorted(walk(self._path))
        if not found:
            raise ObjectNotFound(f"{self._path} holds no files", object=self._path, hint="check the path")
        return found

    def beside(self, name: str) -> Entry | None:
        """See ``Source.beside``."""
        path = os.path.join(self._root, name)
        with local_errors.named(path):
            try:
                return entry_of(name, os.stat(path))
            except (FileNotFoundError, PermissionError):
                return None

    def read_small(self, entry: Entry, start: int, size_bytes: int) -> bytes:
        """See ``Source.read_small``."""
        path = self.name_of(entry)
        content = bytearray(size_bytes)
        view = memoryview(content)
        done = 0
        with local_errors.named(path), self._opened(path, entry) as fd:
            while done < size_bytes:
                count = os.preadv(fd, [view[done:]], start + done)
                if not count:
                    raise _shorter(path, start + done)
                done += count
        return bytes(content)

    def read_into(self, file: Entry | WeightFile, start: int, view: memoryview, meter: Meter) -> None:
        """See ``Source.read_into``. There is nothing to abort: a read of a local disk ends by itself."""
        path = self.name_of(file)
        target = view.cast("B")
        try:
            with self._opened(path, file) as fd:
                meter.connected(_nothing)
                begin, end = self._past_the_cache(fd, start, target)
                _read(fd, path, start, target[:begin], meter)
                if end > begin:
                    begin += self._read_direct(path, start + begin, target[begin:end], meter)
                _read(fd, path, start + begin, target[begin:], meter)
        except OSError as error:
            if error.errno in _PASSING:
                raise Retry(error.strerror or str(error)) from error
            raise local_errors.translate(error, path) from error

    def name_of(self, file: Entry | WeightFile) -> str:
        """The file's path."""
        return os.path.join(self._root, file.name)

    @property
    def maps(self) -> bool:
        """Whether whoever reads all of it may map the files; not where the user wants ``O_DIRECT`` always."""
        return self._direct.mode != "always"

    def opened(self, file: Entry | WeightFile) -> contextlib.AbstractContextManager[int]:
        """A descriptor to read the file by; compared with what was listed at the begin and at the end of the block.

        Raises:
            ObjectChanged: it is another file, or was written to.
            OSError: it can't be opened.
        """
        return self._opened(self.name_of(file), file)

    def close(self) -> None:
        """Nothing is open."""

    def _past_the_cache(self, fd: int, start: int, target: memoryview) -> tuple[int, int]:
        """The part of a range to read with ``O_DIRECT``, as begin and end; empty if none."""
        if not self._direct.may:
            return 0, 0
        begin, end = stretch(target.nbytes, start)
        if end > begin and self._direct.asks:
            there = page_cache.resident_bytes(fd, start + begin, end - begin)
            if there is None or 2 * there > end - begin:
                return 0, 0
        return begin, end

    def _read_direct(self, path: str, start: int, target: memoryview, meter: Meter) -> int:
        """Read past the page cache; less than all, or nothing, where that does not work here."""
        fd = self._direct.open(path)
        if fd is None:
            return 0
        scratch = None if is_aligned(target) else self._direct.scratch()
        done = 0
        try:
            while done < target.nbytes:
                most_bytes = meter.most_bytes if scratch is None else min(meter.most_bytes, scratch.nbytes)
                piece = target[done : done + most_bytes - most_bytes % ALIGNMENT_BYTES]
                if not piece:
                    break
                with self._direct.timed(piece.nbytes):
                    count = os.preadv(fd, [piece if scratch is None else scratch[: piece.nbytes]], start + done)
                if scratch is not None:
                    piece[:count] = scratch[:count]
                done += count
                meter.advance(count)
                if count % ALIGNMENT_BYTES or not count:
                    break
        except OSError as error:
            if not self._direct.refused(error):
                raise
        finally:
            os.close(fd)
        return done

    @contextlib.contextmanager
    def _opened(self, path: str, file: Entry | WeightFile) -> Iterator[int]:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check(fd, path, file)
            yield fd
            _check(fd, path, file)
        finally:
            os.close(fd)


def _read(fd: int, path: str, start: int, target: memoryview, meter: Meter) -> None:
    done = 0
    while done < target.nbytes:
        count = os.preadv(fd, [target[done : done + max(1, meter.most_bytes)]], start + done)
        if not count:
            raise _shorter(path, start + done)
        done += count
        meter.advance(count)


def _check(fd: int, path: str, file: Entry | WeightFile) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or etag_of(status) != file.etag:
        raise ObjectChanged(
            f"{path} has changed since the load began",
            object=path,
            hint="start again, and write new versions of a model into a new folder",
        )


def _shorter(path: str, size_bytes: int) -> ObjectChanged:
    return ObjectChanged(
        f"{path} ends at byte {size_bytes}, before what was asked for", object=path, hint="copy it again from where it came from"
    )


def _nothing() -> None:
    """What aborts a read that can't hang."""
