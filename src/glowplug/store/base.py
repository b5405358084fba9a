"""The store's interface: the few things Glowplug needs from a place that keeps objects.

Why so small: every backend passes one contract suite (``tests/contract``), and what is not here need not be proven. Keys
are relative to the store's own prefix, use ``/``, and never begin with it. A store never lists, reads or writes outside its
prefix, never interprets what it keeps, and knows nothing of caches or weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from glowplug.errors import TooLarge
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MAX_SMALL_BYTES = 64 * MIB
"""What anybody may write into a bucket must not fill a reader's memory. Larger objects are read in ranges."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without reading it."""

    key: str
    """Relative to the store's prefix."""
    size_bytes: int
    """Length of the object."""
    etag: str
    """Opaque; changes when the content under the key does. Kept as the server sent it, quotes included.

    Some servers derive it from the content, so writing the same bytes again may or may not change it.
    """
    modified_s: float
    """When the object was last written, by the store's own clock, in seconds since the epoch."""


class Blob(NamedTuple):
    """A small object, read whole."""

    data: bytes
    """The content."""
    etag: str
    """For a later ``put_if_match``."""


class Store(Protocol):
    """Objects under a prefix. Every method blocks, may be called from several threads at once, and raises ``errors.RemoteError``.

    A method that is given a key outside ``[A-Za-z0-9._/=-]`` (or with an empty, ``.`` or ``..`` part) raises ``UsageError``.
    """

    @property
    def url(self) -> str:
        """The store as the user wrote it, for messages. Holds no credentials."""
        ...

    @property
    def spool(self) -> Path | None:
        """A folder from which ``put_file`` moves instead of copying; None where the store has none.

        Exists when this is read. Who keeps a file there holds a lock on it (``temporary.create``); what nobody holds is a dead
        process's, and anybody may remove it.
        """
        ...

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> int | None:
        """Fill the whole buffer with the object's bytes from ``start`` on (0-based), in one request and without a further copy.

        An empty buffer returns at once, without a request.

        Returns:
            The length of the whole object, which comes along with the bytes; None where that was not said.

        Raises:
            ObjectNotFound: no such key.
            ObjectChanged: ``if_match`` is given and the object's ETag is another one.
            Unreachable: fewer bytes arrived than the buffer holds, or the range ends past the object's end.
        """
        ...

    def get(self, key: str, *, most_bytes: int = MAX_SMALL_BYTES) -> Blob:
        """A small object, whole. Peak memory: the object's size, and so no more than ``most_bytes``.

        Raises:
            ObjectNotFound: no such key.
            TooLarge: it has more than ``most_bytes``; nothing of it is read.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Size, ETag and age of one object. Raises ObjectNotFound."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose key starts with ``prefix``, in key order, page by page. Nothing found is an empty iterator."""
        ...

    def put(self, key: str, data: bytes) -> str:
        """Write, or replace. Returns the new ETag. Readers see the old object or the new one, never a part."""
        ...

    def put_file(self, key: str, path: Path, *, sha256: str) -> str:
        """Write a large object from a file, streaming; peak memory 16 MiB plus 2 MiB for each connection. Returns the new ETag.

        A file that lies in ``spool`` is moved and gone afterwards; any other file is left as it is. ``sha256`` (hex) is the file's
        digest, which the caller knows already; a backend may use it for the request's signature.
        """
        ...

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write unless there is an object under this key. Of any number of concurrent callers exactly one succeeds.

        Raises:
            PreconditionFailed: the key is taken.
            ConditionalWritesUnsupported: the backend can't promise it.
        """
        ...

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object if its ETag is still ``etag``. Of any number of concurrent callers exactly one succeeds.

        Raises:
            PreconditionFailed: the object has changed or is gone.
            ConditionalWritesUnsupported: the backend can't promise it.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; none there is no error."""
        ...


def require_small(name: str, size_bytes: int, most_bytes: int) -> None:
    """Raise TooLarge for an object that must not be read whole."""
    if size_bytes > most_bytes:
        hint = "it is none of ours; delete it, or find out who can write there"
        raise TooLarge(f"{name} has {size_bytes} bytes, more than {most_bytes}", object=name, hint=hint)
