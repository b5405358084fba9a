"""The repository: generations in a store, and the pointer that names the newest (``layout`` says where).

A publication writes in this order, the pointer last, so a reader sees the old generation or the new one, and what a dead publisher
leaves behind is visible to nobody but ``gc``. The pointer is not signed: whoever may write it can at most name another generation
that a trusted key has signed for this very envelope.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from glowplug.cache import layout
from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.manifest import Manifest
from glowplug.cache.quarantine.verdicts import refuse_repetition
from glowplug.errors import BadManifest, ObjectNotFound, PreconditionFailed, TooLarge
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.trust import Signer, Trust
    from glowplug.store.base import Store

_DIGEST = re.compile(r"[0-9a-f]{64}")
_EVICTED = "evicted"
_MAX_POINTER_BYTES = 4096
_MAX_ENVELOPE_BYTES = 4 * MIB
_GENERATION_KEY = re.compile(r"v1/([0-9a-f]{64})/generations/([0-9a-f]{64})\.json")
_QUARANTINE_KEY = re.compile(r"v1/([0-9a-f]{64})/quarantine/([0-9a-f]{64})\.json")
_PACK_KEY = re.compile(r"v1/([0-9a-f]{64})/packs/([0-9a-f]{64})\.tar\.zst")


class Pointer(NamedTuple):
    """What ``latest`` said when it was read."""

    generation: str
    """Digest of the generation."""
    etag: str
    """To move the pointer, if it is still the same."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of an envelope: a generation's manifest, or a pack."""

    digest: str
    size_bytes: int
    modified_s: float


@dataclass(frozen=True)
class Shelf:
    """All that the store holds for one envelope."""

    envelope_digest: str
    latest: Pointer | None
    generations: tuple[Stored, ...]
    """Newest first. ``size_bytes`` is the manifest's own."""
    packs: tuple[Stored, ...]
    bad: frozenset[str] = frozenset()
    """Digests of the generations in quarantine, also of those that are gone."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all its objects but the envelope and the pointer."""
        return sum(stored.size_bytes for stored in self.generations + self.packs)


class Repository:
    """Generations of compile caches in a store. Thread-safe as the store is.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def latest(self, envelope_digest: str) -> Pointer | None:
        """Which generation is the newest; None if nothing has been published for this envelope.

        Raises:
            BadManifest: the pointer is no pointer.
        """
        pointer = self._pointer(envelope_digest)
        if pointer is not None and pointer.generation == _EVICTED:
            return None
        if pointer is not None and not pointer.generation:
            key = layout.latest_key(envelope_digest)
            raise BadManifest(f"{key} names no generation", object=key, hint="the next publication replaces it")
        return pointer

    def load(self, envelope_digest: str, generation: str, trust: Trust) -> Manifest:
        """A generation's manifest, its signature verified and its content checked.

        Raises:
            ObjectNotFound: no such generation.
            TrustError: not signed by a trusted key.
            BadManifest: signed, and yet not usable, or for another envelope.
        """
        key = layout.generation_key(envelope_digest, generation)
        verified = trust.check(self.store.get(key).data, name=key)
        manifest = Manifest.parse(verified.payload, name=key, signer=verified.signer)
        if manifest.digest != generation:
            raise BadManifest(f"{key} holds another generation, {manifest.digest[:12]}", object=key, hint="it was moved or copied")
        if manifest.envelope.digest != envelope_digest:
            raise BadManifest(
                f"generation {generation[:12]} was made for another envelope, {manifest.envelope.digest[:12]}",
                object=key,
                hint="it was moved or copied",
            )
        return manifest

    def envelope(self, envelope_digest: str) -> Envelope:
        """The envelope behind a digest. Raises ObjectNotFound, BadManifest."""
        key = layout.envelope_key(envelope_digest)
        envelope = Envelope.parse(self.store.get(key, most_bytes=_MAX_ENVELOPE_BYTES).data)
        if envelope.digest != envelope_digest:
            raise BadManifest(f"{key} is not the envelope of its digest", object=key)
        return envelope

    def publish(self, manifest: Manifest, pack: Path, signer: Signer, *, replaces: Pointer | None, deadline: Deadline) -> bool:
        """Make a generation the newest.

        Args:
            manifest: what it holds.
            pack: the file with its content; gone afterwards if it lay in the store's spool.
            signer: signs the manifest.
            replaces: the pointer as it was when the capture began; None if there was none. One that names nothing is replaced
                in either case.
            deadline: checked between the steps; nothing is visible if it passes.

        Returns:
            False if somebody else moved the pointer meanwhile; theirs stays.

        Raises:
            BadManifest: these very files are in quarantine.
            RemoteError: the store did not take it.
            DeadlineExceeded: the time is up.
        """
        digest = manifest.envelope.digest
        signed = signer.sign(manifest.document)
        refuse_repetition(self.store, manifest)
        deadline.check()
        self.store.put_file(layout.pack_key(digest, manifest.pack.sha256), pack, sha256=manifest.pack.sha256)
        deadline.check()
        self._put_once(layout.envelope_key(digest), manifest.envelope.document)
        deadline.check()
        self._put_once(layout.generation_key(digest, manifest.digest), signed)
        pointer = canonical_json({"generation": manifest.digest})
        if replaces is None:
            found = self._pointer(digest)
            replaces = found if found is not None and found.generation in {"", _EVICTED} else None
        with deadline.commit():
            try:
                if replaces is None:
                    self.store.put_if_absent(layout.latest_key(digest), pointer)
                else:
                    self.store.put_if_match(layout.latest_key(digest), pointer, replaces.etag)
            except PreconditionFailed:
                return False
        return True

    def shelves(self, envelope_prefix: str = "") -> Iterator[Shelf]:
        """What the store holds, envelope by envelope, in digest order.

        Args:
            envelope_prefix: only envelopes whose digest begins so.
        """
        generations: dict[str, list[Stored]] = defaultdict(list)
        packs: dict[str, list[Stored]] = defaultdict(list)
        bad: dict[str, set[str]] = defaultdict(set)
        digests: set[str] = set()
        for info in self.store.list(layout.ROOT + envelope_prefix):
            digest = info.key[len(layout.ROOT) :].partition("/")[0]
            if not _DIGEST.fullmatch(digest) or info.key == layout.lease_key(digest):  # a start that compiles has left nothing yet
                continue
            digests.add(digest)
            if match := _QUARANTINE_KEY.fullmatch(info.key):
                bad[digest].add(match[2])
            for pattern, shelf in ((_GENERATION_KEY, generations), (_PACK_KEY, packs)):
                if match := pattern.fullmatch(info.key):
                    shelf[digest].append(Stored(match[2], info.size_bytes, info.modified_s))
        for digest in sorted(digests):
            try:
                latest = self.latest(digest)
            except BadManifest:
                latest = None
            newest_first = sorted(generations[digest], key=lambda stored: -stored.modified_s)
            yield Shelf(digest, latest, tuple(newest_first), tuple(packs[digest]), frozenset(bad[digest]))

    def evict(self, envelope_digest: str, *, before_s: float) -> bool:
        """Make the pointer name nothing, so that readers find a miss and a publisher that began before finds that it has moved.

        The pointer itself stays: a delete has no condition, and could hit one that was published meanwhile.

        Args:
            envelope_digest: whose.
            before_s: only if it was last written before this, by the store's clock in seconds since the epoch.

        Returns:
            False if somebody has published meanwhile.
        """
        key = layout.latest_key(envelope_digest)
        pointer = self._pointer(envelope_digest)
        if pointer is None:
            return True
        try:
            if self.store.head(key).modified_s >= before_s:  # asked after the pointer was read, so it vouches for what was read
                return False
            self.store.put_if_match(key, canonical_json({"generation": None}), pointer.etag)
        except (ObjectNotFound, PreconditionFailed):
            return False
        return True

    def _pointer(self, envelope_digest: str) -> Pointer | None:
        """What ``latest`` says; an empty generation where it says nothing of use, ``_EVICTED`` where ``evict`` has written it."""
        try:
            blob = self.store.get(layout.latest_key(envelope_digest), most_bytes=_MAX_POINTER_BYTES)
        except ObjectNotFound:
            return None
        except TooLarge:
            return Pointer("", self.store.head(layout.latest_key(envelope_digest)).etag)
        try:
            generation = json.loads(blob.data)["generation"]
        except (ValueError, KeyError, TypeError, RecursionError):  # nobody signs it: anything may stand there
            generation = ""
        if generation is None:
            return Pointer(_EVICTED, blob.etag)
        return Pointer(generation if isinstance(generation, str) and _DIGEST.fullmatch(generation) else "", blob.etag)

    def _put_once(self, key: str, data: bytes) -> None:
        try:
            self.store.put_if_absent(key, data)
        except PreconditionFailed:
            return  # content-addressed: what is there is the same
