"""Testimony: what one node has seen a generation do, as a small document in the store.

Written by any start, also by one that may write nothing else; read by writers and by ``gc``. So a reader of it believes nothing
but that somebody who may write under this name has put it there: its size and its types are checked, its text is stripped of
control characters, and what it says of signatures and digests is checked again by whoever acts on it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast, get_args

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.cache.quarantine.scrub import MAX_LINES, plain
from glowplug.errors import IntegrityError

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.store.base import Store

SCHEMA = "glowplug.dev/evidence/v1"
MAX_BYTES = 16 * 1024
"""Of a document. A longer one loses its oldest lines before it is written, and is ignored where it is read."""

Kind = Literal["died", "unusable", "recompiled", "integrity"]
"""``died``: the engine died with it, and lived without. ``unusable``: the engine said that it can't load it. ``recompiled``: the
engine compiled everything again. ``integrity``: a signature or a digest was wrong."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NODE = re.compile(r"[0-9a-f]{16}")
_READER = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_TEXT = 400
_MAX_NUMBER = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """One node's word against a generation.

    Attributes:
        envelope: digest.
        generation: digest.
        kind: what happened.
        node: 16 hex digits for the node.
        reader: under which name it was reported.
        at: when, by the node's own clock, RFC 3339 in UTC.
        reason: one clause for people.
        engine: its name.
        engine_version: None if unknown.
        exit_code: the engine's, where it died.
        signal: the number of the signal that ended it, where one did.
        seconds: from the spawn after the restore to the death.
        lines: the engine's last lines, scrubbed.
    """

    envelope: str
    generation: str
    kind: Kind
    node: str
    reader: str
    at: str
    reason: str = ""
    engine: str = ""
    engine_version: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    lines: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Where it lies in the store."""
        return layout.report_key(self.reader, self.envelope, self.generation, self.node)

    @property
    def document(self) -> bytes:
        """Canonical JSON, at most ``MAX_BYTES`` long."""
        written = canonical_json(self._tree())
        kept = self
        while len(written) > MAX_BYTES and kept.lines:
            kept = replace(kept, lines=kept.lines[1:])
            written = canonical_json(kept._tree())  # noqa: SLF001  another of this class
        return written

    @property
    def summary(self) -> dict[str, Json]:
        """What of it goes into a verdict."""
        names = ("kind", "node", "reader", "at", "reason", "exit_code", "signal")
        return {name: value for name, value in self._tree().items() if name in names}

    def _tree(self) -> dict[str, Json]:
        return {
            "schema": SCHEMA,
            "envelope": self.envelope,
            "generation": self.generation,
            "kind": self.kind,
            "node": self.node,
            "reader": self.reader,
            "at": self.at,
            "reason": plain(self.reason, limit=_MAX_TEXT),
            "engine": {"name": plain(self.engine, limit=_MAX_TEXT), "version": plain(self.engine_version or "") or None},
            "exit_code": self.exit_code,
            "signal": self.signal,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "lines": [plain(line) for line in self.lines[-MAX_LINES:]],
        }

    @classmethod
    def parse(cls, document: bytes, *, name: str) -> Testimony:
        """Read a document that anybody may have written.

        Args:
            document: its bytes.
            name: its key in the store; what it says of itself must agree with it.

        Raises:
            IntegrityError: it is none, or does not belong under that key.
        """
        try:
            found = cls._parse(document)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
            raise IntegrityError(f"{name} is no evidence: {plain(problem)}", object=name, hint="it is ignored") from None
        if found.key != name:
            raise IntegrityError(f"{name} says that it lies elsewhere", object=name, hint="it is ignored")
        return found

    @classmethod
    def _parse(cls, document: bytes) -> Testimony:
        if len(document) > MAX_BYTES:
            raise ValueError(f"{len(document)} bytes, more than {MAX_BYTES}")
        tree = json.loads(document)
        if tree["schema"] != SCHEMA:
            raise ValueError("another schema")
        if tree["kind"] not in get_args(Kind):
            raise ValueError("unknown kind")
        engine = tree.get("engine")
        lines = tree.get("lines")
        return cls(
            envelope=_matching(_DIGEST, tree["envelope"]),
            generation=_matching(_DIGEST, tree["generation"]),
            kind=cast("Kind", tree["kind"]),
            node=_matching(_NODE, tree["node"]),
            reader=_matching(_READER, tree["reader"]),
            at=_text(tree.get("at"), limit=40),
            reason=_text(tree.get("reason")),
            engine=_text(engine.get("name")) if isinstance(engine, dict) else "",
            engine_version=_text(engine.get("version")) or None if isinstance(engine, dict) else None,
            exit_code=_whole(tree.get("exit_code")),
            signal=_whole(tree.get("signal")),
            seconds=_seconds(tree.get("seconds")),
            lines=tuple(_text(line) for line in lines[-MAX_LINES:]) if isinstance(lines, list) else (),
        )


def report(store: Store, testimony: Testimony) -> None:
    """Put a node's testimony into the store; it replaces an earlier one of the same node. Raises RemoteError."""
    store.put(testimony.key, testimony.document)


def now() -> str:
    """This moment by the node's own clock, RFC 3339 in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("a name that can't be")
    return value


def _text(value: object, *, limit: int = _MAX_TEXT) -> str:
    return plain(value, limit=limit) if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER else None
