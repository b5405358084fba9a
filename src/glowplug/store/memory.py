"""A store in this process's memory.

For tests of everything that uses a store: it keeps the contract to the letter and needs no disk. It is deliberately not to be
had by URL, since what is written to it is gone with the process.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.errors import ObjectChanged, ObjectNotFound, PreconditionFailed, Unreachable
from glowplug.store.base import MAX_SMALL_BYTES, Blob, ObjectInfo, require_small
from glowplug.store.keys import check_key, check_list_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Entry:
    data: bytes
    etag: str
    modified_s: float = field(default_factory=time.time)


class MemoryStore:
    """Objects in a dict under one lock. Satisfies ``store.base.Store``."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        # A counter, so that replaced content always has another ETag, even if it is equal.
        self._serial = itertools.count(1)

    @property
    def url(self) -> str:
        """Always ``memory:``."""
        return "memory:"

    @property
    def spool(self) -> Path | None:
        """None: there is no folder to move files from."""
        return None

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> int | None:
        """See ``Store.read_into``."""
        check_key(key)
        view = buffer.cast("B")
        if not view.nbytes:
            return None
        entry = self._entry(key)
        if if_match is not None and entry.etag != if_match:
            raise ObjectChanged(f"{key} has changed since it was looked up", object=key, hint="look it up again")
        part = memoryview(entry.data)[start : start + view.nbytes]
        if part.nbytes != view.nbytes:
            raise Unreachable(f"{key} ends at byte {len(entry.data)}, before the range that was asked for", object=key)
        view[:] = part
        return len(entry.data)

    def get(self, key: str, *, most_bytes: int = MAX_SMALL_BYTES) -> Blob:
        """See ``Store.get``."""
        check_key(key)
        entry = self._entry(key)
        require_small(key, len(entry.data), most_bytes)
        return Blob(entry.data, entry.etag)

    def head(self, key: str) -> ObjectInfo:
        """See ``Store.head``."""
        check_key(key)
        return _info(key, self._entry(key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``. A snapshot: what is written later is not listed."""
        check_list_prefix(prefix)
        with self._lock:
            found = sorted((key, entry) for key, entry in self._entries.items() if key.startswith(prefix))
        return (_info(key, entry) for key, entry in found)

    def put(self, key: str, data: bytes) -> str:
        """See ``Store.put``."""
        check_key(key)
        with self._lock:
            return self._write(key, data)

    def put_file(self, key: str, path: Path, *, sha256: str) -> str:
        """See ``Store.put_file``; peak memory is the file's size, since memory is where it goes."""
        del sha256  # nothing is signed here
        return self.put(key, path.read_bytes())

    def put_if_absent(self, key: str, data: bytes) -> str:
        """See ``Store.put_if_absent``."""
        check_key(key)
        with self._lock:
            if key in self._entries:
                raise PreconditionFailed(f"{key} exists already", object=key, hint="read it instead")
            return self._write(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """See ``Store.put_if_match``."""
        check_key(key)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.etag != etag:
                raise PreconditionFailed(f"{key} has changed since it was read", object=key, hint="read it again")
            return self._write(key, data)

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        check_key(key)
        with self._lock:
            self._entries.pop(key, None)

    def _entry(self, key: str) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            raise ObjectNotFound(f"no object {key}", object=key)
        return entry

    def _write(self, key: str, data: bytes) -> str:
        etag = f'"{next(self._serial)}"'
        self._entries[key] = _Entry(bytes(data), etag)
        return etag


def _info(key: str, entry: _Entry) -> ObjectInfo:
    return ObjectInfo(key, len(entry.data), entry.etag, entry.modified_s)
