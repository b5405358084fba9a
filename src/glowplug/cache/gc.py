"""Garbage collection of a repository: what can go. ``sweep`` removes it.

Of each envelope the newest generations stay, and those before them go, with the packs that no generation names and those that a
killed publisher has left. A generation in quarantine goes whatever its number; its verdict stays, so that nobody forgets it. Whole
envelopes go by age or by bytes, the one first for which nothing has been published for longest: a store does not tell what is read.

What is never touched: the generation that ``latest`` names, unless its whole envelope goes; an envelope that somebody holds the
lease of; anything younger than the grace period, which may belong to a publication or a restore that is under way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from glowplug.cache import layout
from glowplug.cache.inventory import holdings, reports
from glowplug.cache.lease import peek
from glowplug.errors import BadManifest, IntegrityError, ObjectNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.cache.inventory import Holding
    from glowplug.cache.repository import Repository, Stored
    from glowplug.cache.trust import Trust
    from glowplug.store.base import ObjectInfo, Store

GRACE_S = 24 * 3600.0
KEEP = 2
REPORTS_S = 30 * 24 * 3600.0
"""A report that no other node has confirmed in this time is one node's own trouble."""

Kind: TypeAlias = Literal["pointer", "generation", "pack", "verdict", "report", "lease", "envelope"]
ORDER: tuple[Kind, ...] = ("pointer", "generation", "pack", "verdict", "report", "lease", "envelope")
"""In which kinds are removed: what a reader comes to first goes first, so that it finds a miss and never a half."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One object that is, or would be, removed."""

    key: str
    envelope_digest: str
    kind: Kind
    digest: str
    """The generation's or pack's; empty for what an envelope has one of."""
    size_bytes: int
    modified_s: float
    """When it was last written, by the store's clock."""
    age_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay.

    Attributes:
        keep: generations for each envelope, the newest first, at least 1.
        grace_s: nothing younger is touched.
        max_age_s: an envelope for which nothing has been published for so long goes; None for no limit.
        max_bytes: of all generations and packs together; None for no limit.
    """

    keep: int = KEEP
    grace_s: float = GRACE_S
    max_age_s: float | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError("--keep must be at least 1", object="--keep", hint="the newest generation is never removed")


def store_now_s(store: Store) -> float:
    """What time it is by the store's clock: it writes a small object and asks when that was. Raises RemoteError."""
    store.put(layout.CLOCK, b"")
    return store.head(layout.CLOCK).modified_s


def plan(repository: Repository, trust: Trust, limits: Limits | None = None, *, now_s: float | None = None) -> Iterator[Removal]:
    """What can go. Reads only. Memory: all names in the store.

    A manifest that can't be read or isn't trusted keeps its pack alive for as long as it stays itself: what it names is unknown.

    Args:
        repository: where to look.
        trust: to read the manifests with.
        limits: what may stay.
        now_s: seconds since the epoch, by the store's clock (``store_now_s``); this machine's if None, which is good enough to say
            what would go.
    """
    limits = limits or Limits()
    now = time.time() if now_s is None else now_s
    kept: list[_Kept] = []
    for holding in holdings(repository.store):
        if _is_leased(repository.store, holding, limits, now):
            kept.append(_Kept(holding, may_go=False))
            continue
        removals = list(_plan_holding(repository, holding, trust, limits, now))
        yield from removals
        kept.append(_Kept(holding, removals, may_go=now - holding.touched_s >= limits.grace_s))
    if limits.max_bytes is not None:
        yield from _fit(kept, limits.max_bytes, now)
    yield from _plan_reports(repository, limits, now)


@dataclass
class _Kept:
    """An envelope, and what goes of it by the other rules than the store's size."""

    holding: Holding
    removals: list[Removal] = field(default_factory=list)
    may_go: bool = True

    @property
    def size_bytes(self) -> int:
        going = sum(removal.size_bytes for removal in self.removals if removal.kind in {"generation", "pack"})
        return self.holding.size_bytes - going


def _plan_holding(repository: Repository, holding: Holding, trust: Trust, limits: Limits, now: float) -> Iterator[Removal]:
    may_go = now - holding.touched_s >= limits.grace_s
    if not holding.generations and not holding.packs:
        if may_go and (holding.lease is None or now - holding.lease.modified_s >= limits.grace_s):
            yield from _everything(holding, "nothing is published for it", now)
    elif may_go and limits.max_age_s is not None and now - holding.published_s >= limits.max_age_s:
        yield from _everything(holding, "nothing was published for it in --max-age", now)
    else:
        yield from _old(repository, holding, trust, limits, now)


def _old(repository: Repository, holding: Holding, trust: Trust, limits: Limits, now: float) -> Iterator[Removal]:
    """Of an envelope that stays, the generations that nobody needs, and the packs that none of the others names."""
    try:
        latest = repository.latest(holding.envelope_digest)
    except BadManifest:
        latest = None
    bad = {verdict.digest for verdict in holding.verdicts}
    named: set[str] = set()
    unknown = False
    kept = 0
    for stored in sorted(holding.generations, key=lambda stored: -stored.modified_s):
        is_latest = latest is not None and latest.generation == stored.digest
        is_old = now - stored.modified_s >= limits.grace_s and not is_latest
        if is_old and stored.digest in bad:
            yield _removal(holding, "generation", stored, now, "in quarantine")
        elif is_old and kept >= limits.keep:
            yield _removal(holding, "generation", stored, now, f"older than the newest {limits.keep}")
        else:
            kept += stored.digest not in bad
            pack = _pack_of(repository, holding.envelope_digest, stored.digest, trust)
            unknown |= pack is None
            named.add(pack or "")
    if unknown:
        return
    for stored in holding.packs:
        if stored.digest not in named and now - stored.modified_s >= limits.grace_s:
            yield _removal(holding, "pack", stored, now, "no kept generation names it")


def _everything(holding: Holding, reason: str, now: float) -> Iterator[Removal]:
    """A whole envelope. The readable envelope and a free lease stay until a later collection finds nothing else there."""
    if holding.latest is not None:
        yield _removal(holding, "pointer", holding.latest, now, reason)
    for stored in holding.generations:
        yield _removal(holding, "generation", stored, now, reason)
    for stored in holding.packs:
        yield _removal(holding, "pack", stored, now, reason)
    for stored in holding.verdicts:
        yield _removal(holding, "verdict", stored, now, reason)
    if holding.generations or holding.packs:
        return
    if holding.lease is not None:
        yield _removal(holding, "lease", holding.lease, now, reason)
    if holding.envelope is not None:
        yield _removal(holding, "envelope", holding.envelope, now, reason)


def _fit(kept: list[_Kept], max_bytes: int, now: float) -> Iterator[Removal]:
    """Whole envelopes, the longest untouched first, until the rest fits."""
    size_bytes = sum(each.size_bytes for each in kept)
    for each in sorted(kept, key=lambda each: each.holding.published_s):
        if size_bytes <= max_bytes:
            return
        if each.may_go and each.size_bytes:
            size_bytes -= each.size_bytes
            planned = {removal.key for removal in each.removals}
            evicted = _everything(each.holding, "the store is larger than --max-bytes", now)
            yield from (removal for removal in evicted if removal.key not in planned)


def _plan_reports(repository: Repository, limits: Limits, now: float) -> Iterator[Removal]:
    there: dict[str, tuple[set[str], set[str]]] = {}
    for report in reports(repository.store):
        if report.envelope_digest not in there:
            generations, bad = set(), set()
            for holding in holdings(repository.store, report.envelope_digest):
                generations = {stored.digest for stored in holding.generations}
                bad = {stored.digest for stored in holding.verdicts}
            there[report.envelope_digest] = generations, bad
        generations, bad = there[report.envelope_digest]
        age_s = now - report.modified_s
        if report.generation in bad:
            reason = "its generation is in quarantine"
        elif report.generation not in generations:
            reason = "its generation is gone"
        elif age_s >= REPORTS_S:
            reason = "nobody has confirmed it"
        else:
            continue
        if age_s >= limits.grace_s:
            digest, size_bytes = report.generation, report.size_bytes
            yield Removal(report.key, report.envelope_digest, "report", digest, size_bytes, report.modified_s, age_s, reason)


def _is_leased(store: Store, holding: Holding, limits: Limits, now: float) -> bool:
    """Whether somebody compiles for this envelope now: the lease says so, and is no older than its own time to live."""
    return holding.lease is not None and is_held(store, holding.envelope_digest, limits.grace_s, now)


def is_held(store: Store, envelope_digest: str, grace_s: float, now_s: float) -> bool:
    """Whether a lease counts for a collection: it is held, and younger than its time to live and the grace period. One request."""
    seen = peek(store, envelope_digest)
    return seen is not None and seen.held and now_s - seen.modified_s < max(seen.holder.ttl_s, grace_s)


def _removal(holding: Holding, kind: Kind, what: Stored | ObjectInfo, now: float, reason: str) -> Removal:
    envelope = holding.envelope_digest
    digest = getattr(what, "digest", "")
    keys = {
        "pointer": layout.latest_key(envelope),
        "generation": layout.generation_key(envelope, digest),
        "pack": layout.pack_key(envelope, digest),
        "verdict": layout.quarantine_key(envelope, digest),
        "lease": layout.lease_key(envelope),
        "envelope": layout.envelope_key(envelope),
    }
    return Removal(keys[kind], envelope, kind, digest, what.size_bytes, what.modified_s, now - what.modified_s, reason)


def _pack_of(repository: Repository, envelope_digest: str, generation: str, trust: Trust) -> str | None:
    try:
        return repository.load(envelope_digest, generation, trust).pack.sha256
    except (IntegrityError, ObjectNotFound):
        return None
