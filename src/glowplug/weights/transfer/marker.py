"""The complete marker: what a finished push or pull leaves beside a checkpoint, last of all.

Why: a store has no folders that are renamed at once, so a checkpoint that is being uploaded looks like one that is there. Who waits
for ``glowplug.complete.json`` never sees half a checkpoint, and a later push or pull learns from it what need not be moved again.
It is not signed and proves nothing: the seal does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from glowplug import __version__
from glowplug.errors import IntegrityError
from glowplug.store.keys import RESERVED
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPLETE_NAME = "glowplug.complete.json"
SEAL_NAME = "glowplug.seal.json"
PUSHING_NAME = "glowplug.pushing.json"
"""There while a push is at work, or where one has died; see ``push_claim``."""
OWN_NAMES = frozenset({COMPLETE_NAME, SEAL_NAME, PUSHING_NAME})
"""Beside a checkpoint, and no part of it."""
SCHEMA = "glowplug.dev/complete/v1"
MAX_MARKER_BYTES = 16 * MIB
"""A marker of 20,000 files has about 3 MiB. What is larger is refused unread."""

_AGAIN = "delete it, and push or pull again"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_own(name: str) -> bool:
    """Whether a file beside a checkpoint is one of Glowplug's: those above, and what a store needs for itself (``.glowplug``)."""
    return name in OWN_NAMES or RESERVED in name.split("/")


@dataclass(frozen=True, slots=True)
class MarkedFile:
    """One file of a complete checkpoint.

    Attributes:
        name: relative to the checkpoint, with ``/``.
        size_bytes: its length.
        sha256: hex digest of its content; empty where it is not known.
        etag: of the object that it was pulled from; empty after a push.
    """

    name: str
    size_bytes: int
    sha256: str = ""
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """A complete checkpoint.

    Attributes:
        files: all of them, by name.
        source: where they came from, without credentials; empty after a push.
        verified: what they were compared with: see ``pull_folder``; empty after a push.
    """

    files: tuple[MarkedFile, ...]
    source: str = ""
    verified: str = ""

    def document(self) -> bytes:
        """The marker as JSON, for a person to read as well."""
        files = [
            {"name": file.name, "bytes": file.size_bytes}
            | ({"sha256": file.sha256} if file.sha256 else {})
            | ({"etag": file.etag} if file.etag else {})
            for file in sorted(self.files, key=lambda file: file.name)
        ]
        tree = {
            "schema": SCHEMA,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "producer": f"glowplug {__version__}",
            "source": self.source,
            "verified": self.verified,
            "bytes": sum(file.size_bytes for file in self.files),
            "files": files,
        }
        return json.dumps(tree, indent=1).encode() + b"\n"  # in ASCII: a path may hold what UTF-8 can't say

    @property
    def by_name(self) -> dict[str, MarkedFile]:
        """The files, to look one up."""
        return {file.name: file for file in self.files}


def parse_marker(document: bytes, *, name: str) -> Marker:
    """A marker from its JSON.

    Args:
        document: the object's bytes.
        name: of the object, for messages.

    Raises:
        IntegrityError: it is no marker.
    """
    reason = "it is not of the form that glowplug writes"
    try:
        if len(document) > MAX_MARKER_BYTES:
            raise IntegrityError(f"{name}: is no complete marker: it is too large", object=name, hint=_AGAIN)
        tree = json.loads(document)
        if tree["schema"] == SCHEMA:
            return Marker(tuple(_files(tree["files"])), str(tree.get("source", "")), str(tree.get("verified", "")))
        reason = f"its schema is not {SCHEMA}"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # said below
    raise IntegrityError(f"{name}: is no complete marker: {reason}", object=name, hint=_AGAIN)


def _files(entries: Iterable[dict[str, object]]) -> Iterable[MarkedFile]:
    for entry in entries:
        name, size, sha256, etag = entry["name"], entry["bytes"], entry.get("sha256", ""), entry.get("etag", "")
        if not isinstance(name, str) or type(size) is not int or size < 0 or not isinstance(etag, str):
            raise TypeError
        if not isinstance(sha256, str) or (sha256 and not _SHA256.fullmatch(sha256)):
            raise TypeError
        yield MarkedFile(name, size, sha256, etag)
