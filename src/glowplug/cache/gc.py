"""Garbage collection of a repository: old generations, and packs that no generation names.

The generation that ``latest`` names is never removed, and nothing younger than the grace period is: it may belong to a publication
that is under way. A reader that began with a generation removed meanwhile finds its pack gone and starts cold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowplug.cache import layout
from glowplug.errors import BadManifest, IntegrityError, ObjectNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.cache.repository import Repository, Shelf, Stored
    from glowplug.cache.trust import Trust

GRACE_S = 24 * 3600.0
KEEP = 2


@dataclass(frozen=True, slots=True)
class Removal:
    """One object that is, or would be, removed."""

    envelope_digest: str
    kind: Literal["generation", "pack"]
    digest: str
    size_bytes: int
    modified_s: float
    """When it was last written, by the store's clock."""
    age_s: float
    reason: str


def plan(
    repository: Repository, trust: Trust, *, keep: int = KEEP, grace_s: float = GRACE_S, now_s: float | None = None
) -> Iterator[Removal]:
    """What can go. Reads only.

    A manifest that can't be read or isn't trusted keeps its pack alive for as long as it stays itself: what it names is unknown.

    Args:
        repository: where to look.
        trust: to read the manifests with.
        keep: generations kept for each envelope, the newest first, at least 1.
        grace_s: nothing younger is touched.
        now_s: seconds since the epoch; a test may set it.
    """
    if keep < 1:
        raise UsageError("--keep must be at least 1", object="--keep", hint="the newest generation is never removed")
    now = time.time() if now_s is None else now_s
    for shelf in repository.shelves():
        yield from _plan_shelf(repository, shelf, trust, keep=keep, grace_s=grace_s, now=now)


def sweep(repository: Repository, removals: list[Removal]) -> None:
    """Remove what ``plan`` found, generations before packs, but not what has come to be used meanwhile.

    That is a generation that ``latest`` names now, and a pack that has been written again: a publication under way will name it.
    """
    for removal in sorted(removals, key=lambda removal: removal.kind):
        if removal.kind == "generation":
            if not _is_latest(repository, removal):
                repository.remove_generation(removal.envelope_digest, removal.digest)
        elif _is_untouched(repository, removal):
            repository.remove_pack(removal.envelope_digest, removal.digest)


def _is_latest(repository: Repository, removal: Removal) -> bool:
    try:
        latest = repository.latest(removal.envelope_digest)
    except BadManifest:
        return False  # a broken pointer names nothing
    return latest is not None and latest.generation == removal.digest


def _is_untouched(repository: Repository, removal: Removal) -> bool:
    try:
        info = repository.store.head(layout.pack_key(removal.envelope_digest, removal.digest))
    except ObjectNotFound:
        return False
    return info.modified_s < removal.modified_s + 1  # the head of an HTTP object tells whole seconds, a list may tell more


def _plan_shelf(repository: Repository, shelf: Shelf, trust: Trust, *, keep: int, grace_s: float, now: float) -> Iterator[Removal]:
    named: set[str] = set()
    unknown = False
    kept = 0
    for stored in shelf.generations:
        age_s = now - stored.modified_s
        is_latest = shelf.latest is not None and shelf.latest.generation == stored.digest
        if is_latest or kept < keep or age_s < grace_s:
            kept += 1
            pack = _pack_of(repository, shelf.envelope_digest, stored.digest, trust)
            unknown |= pack is None
            named.add(pack or "")
        else:
            yield _removal(shelf, "generation", stored, now, f"older than the newest {keep}")
    if unknown:
        return
    for stored in shelf.packs:
        if stored.digest not in named and now - stored.modified_s >= grace_s:
            yield _removal(shelf, "pack", stored, now, "no kept generation names it")


def _removal(shelf: Shelf, kind: Literal["generation", "pack"], stored: Stored, now: float, reason: str) -> Removal:
    return Removal(
        shelf.envelope_digest, kind, stored.digest, stored.size_bytes, stored.modified_s, now - stored.modified_s, reason
    )


def _pack_of(repository: Repository, envelope_digest: str, generation: str, trust: Trust) -> str | None:
    try:
        return repository.load(envelope_digest, generation, trust).pack.sha256
    except (IntegrityError, ObjectNotFound):
        return None
