"""Verdicts: one object for each generation that is bad for everyone.

That the object exists is the verdict. It is not signed, because it can only withhold: whoever may write it, a writer or the
janitor, could as well move the pointer away from the generation. Its content tells people why, and is never trusted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.cache.quarantine.scrub import plain
from glowplug.errors import BadManifest, ObjectNotFound, PreconditionFailed, TooLarge

if TYPE_CHECKING:
    from glowplug.cache.deadline import Deadline
    from glowplug.cache.envelope import Json
    from glowplug.cache.manifest import Manifest
    from glowplug.store.base import Store

SCHEMA = "glowplug.dev/verdict/v1"
MAX_BYTES = 64 * 1024

By = Literal["reports", "verification", "hand"]

_NAME = re.compile(r"([0-9a-f]{64})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_EVIDENCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a generation is bad for everyone.

    Attributes:
        envelope: digest.
        generation: digest.
        reason: one clause for people.
        by: nodes' reports; a writer's own verification of signature and digests; or a person.
        at: when, by the writer's own clock, RFC 3339 in UTC.
        pack: digest of the pack that the generation names; empty if it could not be read. The same bytes are not published again.
        evidence: the testimonies in short.
    """

    envelope: str
    generation: str
    reason: str
    by: By
    at: str
    pack: str = ""
    evidence: tuple[dict[str, Json], ...] = ()

    @property
    def document(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(
            {
                "schema": SCHEMA,
                "envelope": self.envelope,
                "generation": self.generation,
                "reason": plain(self.reason),
                "by": self.by,
                "at": self.at,
                "pack": self.pack,
                "evidence": list(self.evidence[:_MAX_EVIDENCE]),
            }
        )


def condemn(store: Store, verdict: Verdict) -> bool:
    """Make a generation bad for everyone. False if it was already.

    Raises:
        RemoteError: the store did not take it.
    """
    try:
        store.put_if_absent(layout.quarantine_key(verdict.envelope, verdict.generation), verdict.document)
    except PreconditionFailed:
        return False
    return True


def acquit(store: Store, envelope: str, generation: str) -> None:
    """Let a generation be used again, and forget what nodes have said against it; else the next writer would condemn it again.

    Lists all reports of the store. Raises RemoteError.
    """
    for info in list(store.list(layout.REPORTS)):
        if info.key.split("/")[3:5] == [envelope, generation]:
            store.delete(info.key)
    store.delete(layout.quarantine_key(envelope, generation))


def condemned(store: Store, envelope: str, *, deadline: Deadline | None = None) -> frozenset[str]:
    """Digests of an envelope's bad generations. One request for each thousand of them.

    Raises:
        RemoteError: the store did not answer.
        DeadlineExceeded: the time is up.
    """
    prefix = layout.quarantine_key(envelope, "").removesuffix(".json")
    found = set()
    for info in store.list(prefix):
        if deadline is not None:
            deadline.check()
        if match := _NAME.fullmatch(info.key[len(prefix) :]):
            found.add(match[1])
    return frozenset(found)


def verdict_on(store: Store, envelope: str, generation: str) -> Verdict | None:
    """The verdict on a generation; None if there is none. One whose content says nothing is a verdict all the same.

    Raises:
        RemoteError: the store did not answer.
    """
    try:
        document = store.get(layout.quarantine_key(envelope, generation), most_bytes=MAX_BYTES).data
    except ObjectNotFound:
        return None
    except TooLarge:
        document = b""
    try:
        tree = json.loads(document)
    except (ValueError, RecursionError):
        tree = None
    tree = tree if isinstance(tree, dict) else {}
    by = tree.get("by") if tree.get("by") in ("reports", "verification") else "hand"
    evidence = tree.get("evidence")
    return Verdict(
        envelope=envelope,
        generation=generation,
        reason=_text(tree.get("reason")) or "it does not say why",
        by=cast("By", by),
        at=_text(tree.get("at")),
        pack=_text(tree.get("pack")) if _DIGEST.fullmatch(_text(tree.get("pack"))) else "",
        evidence=tuple(_short(entry) for entry in evidence[:_MAX_EVIDENCE]) if isinstance(evidence, list) else (),
    )


def refuse_repetition(store: Store, manifest: Manifest) -> None:
    """Stop a publication of what is in quarantine already: the same generation, or other words around the same bytes.

    A live folder that was not emptied would be captured as it is, with another date, and be another generation. One request where
    nothing is bad.

    Raises:
        BadManifest: it is in quarantine.
        RemoteError: the store did not answer.
    """
    envelope = manifest.envelope.digest
    for generation in sorted(condemned(store, envelope)):
        verdict = verdict_on(store, envelope, generation)
        if verdict is not None and (generation == manifest.digest or verdict.pack == manifest.pack.sha256):
            raise BadManifest(
                f"these very files are in quarantine as generation {generation[:12]}: {verdict.reason}",
                object=layout.quarantine_key(envelope, generation),
                hint="empty the live folder and start once without the cache, or lift it: glowplug cache quarantine --lift",
            )


def _text(value: object) -> str:
    return plain(value) if isinstance(value, str) else ""


def _short(entry: object) -> dict[str, Json]:
    """One testimony in short, its text made harmless."""
    if not isinstance(entry, dict):
        return {}
    names = ("kind", "node", "reader", "at", "reason", "exit_code", "signal")
    return {name: _text(entry[name]) if isinstance(entry[name], str) else _number(entry[name]) for name in names if name in entry}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9 else None
