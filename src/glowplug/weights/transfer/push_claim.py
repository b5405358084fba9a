"""The claim on a prefix: while a push is at work there, no push of another checkpoint begins.

Why: two pushes that list an empty prefix at once would both write, and what each leaves is a mixture under names that fit. So
the first thing that a push writes is ``glowplug.pushing.json``, by a conditional write that one of any number wins. It tells the
content that is pushed: whoever pushes the same may share it, which is also how an interrupted push goes on. It goes when the marker
is there; a push that dies leaves it, since what it has sent is half of a checkpoint. It guards against accidents, not malice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from glowplug import __version__
from glowplug.errors import ConditionalWritesUnsupported, IntegrityError, ObjectNotFound, PreconditionFailed
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, parse_marker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.store.base import Store

_SCHEMA = "glowplug.dev/pushing/v1"
_TRIES = 8
"""Each is lost only to another push that came or went in the same moment."""


def content_of(digests: Mapping[str, str]) -> str:
    """One digest of a checkpoint: over the names and SHA-256 of all its files."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


class Claim:
    """The claim of one push. Thread-safe, since it keeps nothing but a flag; every method blocks.

    Args:
        store: to push to.
        content: what is pushed, from ``content_of``.
    """

    def __init__(self, store: Store, content: str) -> None:
        self._store = store
        self._content = content
        self._where = f"{store.url.rstrip('/')}/{PUSHING_NAME}"
        self.is_supported = True
        """Whether the store makes conditional writes. Without them nothing is claimed."""
        self.made = False
        """Whether the claim was made, or taken over, by this push."""

    def refuse_other(self) -> None:
        """Raise PreconditionFailed if another content is claimed; make no claim."""
        with contextlib.suppress(ObjectNotFound):
            data = self._store.get(PUSHING_NAME).data
            if _content(data) != self._content:
                raise self._other(data)

    def take(self, *, force: bool = False) -> None:
        """Claim the prefix, or share the claim of another push of the same content.

        Args:
            force: take over the claim of a push of other content, which then ends with an error.

        Raises:
            PreconditionFailed: another content is claimed, and ``force`` is not set.
        """
        document = self._document()
        for _ in range(_TRIES):
            try:
                self._store.put_if_absent(PUSHING_NAME, document)
            except ConditionalWritesUnsupported:
                self.is_supported = False
                return
            except PreconditionFailed:
                pass  # somebody's; looked at below
            else:
                self.made = True
                return
            try:
                found = self._store.get(PUSHING_NAME)
                if _content(found.data) == self._content:
                    return
                if not force:
                    raise self._other(found.data)
            except ObjectNotFound:
                continue  # it went meanwhile
            with contextlib.suppress(PreconditionFailed):  # it changed meanwhile
                self._store.put_if_match(PUSHING_NAME, document, found.etag)
                self.made = True
                return
        hint = "push again when the other pushes have ended"
        raise PreconditionFailed(f"{self._where} changes all the time", object=PUSHING_NAME, hint=hint)

    def hold(self) -> None:
        """Make sure that the claim is still of this content.

        Raises:
            PreconditionFailed: another push took it over; it may have ended since, and have left its marker.
        """
        if not self.is_supported:
            return
        try:
            data = self._store.get(PUSHING_NAME).data
        except ObjectNotFound:
            self._refuse_marked()
            self.take()  # one that shared it has ended, well or without having written
            return
        if _content(data) != self._content:
            raise self._other(data)

    def _refuse_marked(self) -> None:
        with contextlib.suppress(ObjectNotFound, IntegrityError):
            marker = parse_marker(self._store.get(COMPLETE_NAME).data, name=self._where)
            if content_of({file.name: file.sha256 for file in marker.files}) != self._content:
                hint = "push again with --force if yours is the one to stay"
                what = f"{self._where}: another push took this place over, and has ended"
                raise PreconditionFailed(what, object=PUSHING_NAME, hint=hint)

    def release(self) -> None:
        """Remove it, unless it is another push's by now."""
        with contextlib.suppress(ObjectNotFound):
            if _content(self._store.get(PUSHING_NAME).data) == self._content:
                self._store.delete(PUSHING_NAME)

    def _document(self) -> bytes:
        tree = {
            "schema": _SCHEMA,
            "content": self._content,
            "by": f"process {os.getpid()} on {socket.gethostname()}",
            "began_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "producer": f"glowplug {__version__}",
        }
        return json.dumps(tree, indent=1).encode() + b"\n"

    def _other(self, data: bytes) -> PreconditionFailed:
        who = "".join(f", {word} {_field(data, key)}" for word, key in (("by", "by"), ("since", "began_at")) if _field(data, key))
        hint = "wait until it has ended, or push to another prefix; if it is dead, take over with --force"
        return PreconditionFailed(f"{self._where}: another checkpoint is being pushed there{who}", object=PUSHING_NAME, hint=hint)


def _content(data: bytes) -> str:
    return _field(data, "content")


def _field(data: bytes, key: str) -> str:
    """A field of a claim; empty if it has none, whatever was written there."""
    with contextlib.suppress(ValueError, RecursionError):
        tree = json.loads(data)
        if isinstance(tree, dict) and isinstance(found := tree.get(key), str):
            return "".join(char for char in found[:128] if char.isprintable())
    return ""
