"""The manifest: what a generation holds, file by file, and for which envelope.

It is the part that is signed. A reader that trusts the signature knows every path, size, mode and digest before it touches the
pack, so the pack itself need not be trusted. A manifest that describes anything but plain files under a known family is refused
here, whoever has signed it. This module reads and writes documents; it never opens a file of the cache.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.families import FAMILIES
from glowplug.errors import BadManifest
from glowplug.units import GIB

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json

SCHEMA = "glowplug.dev/manifest/v1"

NOT_USED = "the generation is not used; the next cold start publishes another"

MAX_FILES = 1_000_000
"""Files in one generation; the largest caches seen have some tens of thousands."""
MAX_BYTES = 64 * GIB
"""Bytes in one generation, unpacked; the largest caches seen have 4 GB."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_PATH = 4096  # PATH_MAX
_MAX_NAME = 255  # NAME_MAX
_MAX_DEPTH = 100  # the deepest seen has 12; what walks a tree recursively must not run out of stack
_MAX_SECONDS = 366 * 24 * 3600  # no start takes a year; keeps every later calculation with it finite


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One plain file.

    Attributes:
        path: ``family/relative/path``, with ``/``.
        size_bytes: its length.
        mode: permission bits, 0 to 0o777.
        mtime_ns: modification time, nanoseconds since the epoch: ninja rebuilds what looks older than its source.
        sha256: digest of its content, 64 hex digits.
    """

    path: str
    size_bytes: int
    mode: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PackInfo:
    """The pack that holds the files' content, in the order of the manifest."""

    sha256: str
    """Digest of the compressed pack; it names the object."""
    size_bytes: int
    """Its compressed length."""


@dataclass(frozen=True)
class Manifest:
    """One generation.

    Attributes:
        envelope: for which starts it is good.
        files: sorted by path.
        pack: where the content is.
        cold_start_s: seconds from start to ready without a cache, as its producer measured; None if unknown.
        created_at: RFC 3339 in UTC.
        producer: the version that wrote it.
        signer: whose signature was found good when it was read (``Verified.signer``); no part of the document.
    """

    envelope: Envelope
    files: tuple[FileEntry, ...]
    pack: PackInfo
    cold_start_s: float | None
    created_at: str
    producer: str
    signer: str = field(default="", compare=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, unpacked."""
        return sum(entry.size_bytes for entry in self.files)

    @cached_property
    def document(self) -> bytes:
        """The manifest as canonical JSON: what is signed."""
        tree: dict[str, Json] = {
            "schema": SCHEMA,
            "envelope": dict(self.envelope.components),
            "files": [[entry.path, entry.size_bytes, entry.mode, entry.mtime_ns, entry.sha256] for entry in self.files],
            "pack": {"sha256": self.pack.sha256, "size_bytes": self.pack.size_bytes, "format": "tar.zst"},
            "cold_start_s": self.cold_start_s,
            "created_at": self.created_at,
            "producer": self.producer,
        }
        return canonical_json(tree)

    @cached_property
    def digest(self) -> str:
        """sha256 of the document: the generation's name."""
        return hashlib.sha256(self.document).hexdigest()

    @classmethod
    def parse(cls, document: bytes, *, name: str = "manifest", signer: str = "") -> Manifest:
        """Read and check a document whose signature has been verified.

        Args:
            document: canonical JSON.
            name: what it is (its key in the store), for messages.
            signer: who has signed it.

        Raises:
            BadManifest: of another schema, or with a file that must not be unpacked; the text names it.
        """
        try:
            return cls._parse(document, signer)
        except BadManifest as error:
            raise BadManifest(f"{name}: {error.message}", object=error.object or name, hint=error.hint or NOT_USED) from None

    @classmethod
    def _parse(cls, document: bytes, signer: str) -> Manifest:
        try:
            tree = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise BadManifest(f"is not JSON: {error}") from None
        if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
            raise BadManifest(f"is not of schema {SCHEMA}", hint="it was written by another version of Glowplug")
        components = tree.get("envelope")
        if not isinstance(components, dict):
            raise BadManifest("has no envelope")
        manifest = cls(
            envelope=Envelope(components),
            files=_files(tree.get("files")),
            pack=_pack(tree.get("pack")),
            cold_start_s=_cold_start_s(tree.get("cold_start_s")),
            created_at=str(tree.get("created_at", "")),
            producer=str(tree.get("producer", "")),
            signer=signer,
        )
        try:
            canonical = manifest.document == document
        except (ValueError, RecursionError):  # NaN, half a surrogate pair, or nested too deeply: canonical JSON has none of them
            canonical = False
        if not canonical:
            raise BadManifest("is not in canonical form", hint="it was altered, or written by another version of Glowplug")
        return manifest


def check_path(path: str) -> None:
    """Refuse a path that could leave the folder it is unpacked into, or that belongs to no family.

    Raises:
        BadManifest: and names the path.
    """
    parts = path.split("/")
    if path.startswith("/"):
        problem = "is absolute"
    elif ".." in parts:
        problem = "leads out of its folder"
    elif "" in parts or "." in parts or "\0" in path or "\\" in path:
        problem = "is not a plain relative path"
    elif len(path.encode(errors="replace")) > _MAX_PATH or any(len(part.encode(errors="replace")) > _MAX_NAME for part in parts):
        problem = "is too long"
    elif len(parts) > _MAX_DEPTH:
        problem = "is too deep"
    elif any("\ud800" <= letter <= "\udfff" for letter in path):
        problem = "is not UTF-8"
    elif len(parts) < 2 or parts[0] not in FAMILIES:
        problem = f"belongs to no cache family ({', '.join(FAMILIES)})"
    else:
        return
    raise BadManifest(f"path {path[:200]!r} {problem}", object=path[:200])


def _files(rows: object) -> tuple[FileEntry, ...]:
    if not isinstance(rows, list):
        raise BadManifest("has no list of files")
    if len(rows) > MAX_FILES:
        raise BadManifest(f"lists {len(rows)} files, more than {MAX_FILES}")
    entries = tuple(_entry(row) for row in rows)
    total = sum(entry.size_bytes for entry in entries)
    if total > MAX_BYTES:
        raise BadManifest(f"describes {total} bytes, more than {MAX_BYTES}")
    _check_names([entry.path for entry in entries])
    return entries


def _check_names(paths: list[str]) -> None:
    if any(left >= right for left, right in itertools.pairwise(paths)):
        seen: set[str] = set()
        for path in paths:
            if path in seen:
                raise BadManifest(f"path {path[:200]!r} appears twice", object=path[:200])
            seen.add(path)
        raise BadManifest("files are not sorted by path")
    names = set(paths)
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            if folder in names:
                raise BadManifest(f"{folder[:200]!r} is a file and a folder", object=folder[:200])
            folders.add(folder)
            folder = folder.rpartition("/")[0]


def _cold_start_s(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise BadManifest("cold_start_s is not a number of seconds")
    return value


def _entry(row: object) -> FileEntry:
    match row:
        case [str(path), int(size_bytes), int(mode), int(mtime_ns), str(sha256)] if bool not in map(type, row):
            check_path(path)
        case [str(path), *_]:
            raise BadManifest(f"{path[:200]!r} is not described by size, mode, time and digest", object=path[:200])
        case _:
            raise BadManifest("a file entry has no path")
    if mode & ~0o777 or mode < 0:
        raise BadManifest(
            f"{path[:200]!r} has mode {f'{mode:#o}'[:12]}: set-id bits and file types are refused",
            object=path[:200],
        )
    if not 0 <= size_bytes <= MAX_BYTES or not 0 <= mtime_ns < 2**63 or not _SHA256.fullmatch(sha256):
        raise BadManifest(f"{path[:200]!r} has an impossible size, time or digest", object=path[:200])
    return FileEntry(path, size_bytes, mode, mtime_ns, sha256)


def _pack(tree: object) -> PackInfo:
    match tree:
        case {"sha256": str(sha256), "size_bytes": int(size_bytes), "format": "tar.zst"} if (
            _SHA256.fullmatch(sha256) and 0 <= size_bytes <= 2 * MAX_BYTES and not isinstance(size_bytes, bool)
        ):
            return PackInfo(sha256, size_bytes)
    raise BadManifest("does not say where its pack is")
