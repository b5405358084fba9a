"""Where a push writes to: a bucket, which keeps a digest with each object, or a folder, whose files are read to compare them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from glowplug import temporary
from glowplug.errors import LocalError
from glowplug.units import MIB
from glowplug.weights.whole_file import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO

    from glowplug.store.base import Store
    from glowplug.store.s3 import S3Store

_STEP_BYTES = 16 * MIB


class Target(Protocol):
    """A store, as a push sees it. Thread-safe; every method blocks."""

    def digest(self, key: str, size_bytes: int) -> str:
        """The sha256 of the object that lies there, of that size; empty where it can't be told without fetching it."""
        ...

    def upload(self, key: str, path: Path, sha256: str, progress: Callable[[int, bool], None]) -> str:
        """Write an object from a file, all or nothing. Returns its ETag.

        Args:
            key: relative to the store.
            path: of the file.
            sha256: its digest, as hex digits.
            progress: told the size of each part that is there, and whether it was sent now.
        """
        ...

    def stop(self) -> None:
        """Begin no further part; the uploads under way end with an error."""
        ...


def target_for(store: Store, *, connections: int) -> Target:
    """The target that suits a store.

    Args:
        store: to write to.
        connections: requests at once, over all files.
    """
    if store.url.startswith("s3://"):
        from glowplug.store.s3 import S3Store  # noqa: PLC0415  only who uses S3 pays for loading it

        if isinstance(store, S3Store):
            return BucketTarget(store, connections=connections)
    return FolderTarget(store)


class BucketTarget:
    """A bucket: parts in parallel, and an interrupted file goes on with the parts that are there."""

    def __init__(self, store: S3Store, *, connections: int) -> None:
        from glowplug.store.s3_multipart import Lanes  # noqa: PLC0415  the same

        self._store = store
        self._lanes = Lanes(connections)

    def digest(self, key: str, size_bytes: int) -> str:
        """See ``Target.digest``: what the upload left with the object."""
        del size_bytes
        return self._store.sha256(key)

    def upload(self, key: str, path: Path, sha256: str, progress: Callable[[int, bool], None]) -> str:
        """See ``Target.upload``."""
        return self._store.upload(key, path, sha256=sha256, lanes=self._lanes, progress=progress)

    def stop(self) -> None:
        """See ``Target.stop``."""
        self._lanes.close()


class FolderTarget:
    """A folder (or any other store): files are copied beside their place, and moved there when they are whole."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = False

    def digest(self, key: str, size_bytes: int) -> str:
        """See ``Target.digest``: the file is read."""
        digest = hashlib.sha256()
        block = memoryview(bytearray(max(1, min(_STEP_BYTES, size_bytes))))
        for start in range(0, size_bytes, _STEP_BYTES):
            piece = block[: min(_STEP_BYTES, size_bytes - start)]
            self._store.read_into(key, start, piece)
            digest.update(piece)
        return digest.hexdigest()

    def upload(self, key: str, path: Path, sha256: str, progress: Callable[[int, bool], None]) -> str:
        """See ``Target.upload``."""
        spool = self._store.spool
        if spool is None:
            etag = self._store.put_file(key, path, sha256=sha256)
            progress(os.stat(path).st_size, True)  # noqa: FBT003  one of two words
            return etag
        spooled = spool / f"{os.getpid()}-push-{random.getrandbits(64):016x}"
        try:
            with open(path, "rb", buffering=0) as source, open(temporary.create(spooled), "wb", buffering=0) as copy:
                for size in self._copy(source, copy):
                    progress(size, True)  # noqa: FBT003  the same
                return self._store.put_file(key, spooled, sha256=sha256)
        except OSError as error:
            raise failed(error, Path(error.filename or spool), again="push again: it goes on from there") from error
        finally:
            with contextlib.suppress(OSError):
                spooled.unlink()

    def stop(self) -> None:
        """See ``Target.stop``."""
        self._stopped = True

    def _copy(self, source: FileIO, copy: FileIO) -> Iterator[int]:
        while not self._stopped:
            size = os.sendfile(copy.fileno(), source.fileno(), None, _STEP_BYTES)
            if not size:
                return
            yield size
        raise LocalError("the copy was stopped", object=str(source.name))
