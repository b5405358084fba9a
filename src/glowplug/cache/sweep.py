"""Garbage collection of a repository: what ``gc`` has planned is removed, beside readers and publishers that know nothing of it.

Time passes between the plan and the removal, so each object is looked at again just before it goes. An envelope that somebody has
taken the lease of meanwhile is left alone, and one whose pointer has moved keeps what was planned with it. A whole envelope loses
its pointer first, by compare-and-swap: from then on readers find a miss, and a publisher that had read the old pointer finds that
it has moved and begins again. Then manifests go, then packs. A reader that was between these steps finds an object gone, and starts
cold.

What stays possible is the moment between the last look and the removal, some milliseconds. A pack that is published again in
exactly that moment is lost with it: the next start finds its generation without a pack, compiles, and publishes anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.gc import GRACE_S, ORDER, Removal, is_held
from glowplug.cache.inventory import holdings
from glowplug.errors import BadManifest, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glowplug.cache.inventory import Holding
    from glowplug.cache.repository import Repository

_CLOCK_STEP_S = 1.0  # the head of an HTTP object tells whole seconds, a list may tell more


def sweep(repository: Repository, removals: Iterable[Removal], *, grace_s: float = GRACE_S, now_s: float) -> Iterator[Removal]:
    """Remove what ``plan`` found, but not what has come to be used meanwhile. Yields what was removed.

    Args:
        repository: where.
        removals: of one plan, all of them.
        grace_s: as in the plan; a held lease that is younger protects its envelope.
        now_s: as in the plan, by the store's clock.

    Raises:
        RemoteError: the store refused, or did not answer; what was removed until then is gone, and a rerun goes on.
    """
    sweeping = _Sweep(repository, grace_s, now_s)
    for removal in sorted(removals, key=lambda removal: (removal.envelope_digest, ORDER.index(removal.kind))):
        if sweeping.remove(removal):
            yield removal


@dataclass
class _Sweep:
    repository: Repository
    grace_s: float
    now_s: float
    _leased: dict[str, bool] = field(default_factory=dict)
    _published: set[str] = field(default_factory=set)
    """Envelopes for which somebody has published since the plan."""

    def remove(self, removal: Removal) -> bool:
        """Remove one object, unless it is used. Whether it is gone."""
        if removal.kind != "report" and (removal.envelope_digest in self._published or self._is_leased(removal.envelope_digest)):
            return False
        if removal.kind == "pointer":
            return self._remove_pointer(removal)
        if not self._may_go(removal):
            return False
        self.repository.store.delete(removal.key)
        return True

    def _may_go(self, removal: Removal) -> bool:
        match removal.kind:
            case "generation":
                return not self._is_latest(removal)
            case "pack":
                return self._is_untouched(removal)
            case "lease" | "envelope":
                return self._is_untouched(removal) and not self._holds_anything(removal.envelope_digest)
            case _:
                return True

    def _remove_pointer(self, removal: Removal) -> bool:
        """Make it name nothing; where it has done so since an earlier collection, and nothing else is left, it goes itself."""
        envelope = removal.envelope_digest
        if self._names_something(envelope):
            if self.repository.evict(envelope, before_s=removal.modified_s + _CLOCK_STEP_S):
                return True
            self._published.add(envelope)
        elif self._is_untouched(removal) and not self._holds_anything(envelope):
            self.repository.store.delete(removal.key)
            return True
        return False

    def _names_something(self, envelope: str) -> bool:
        try:
            return self.repository.latest(envelope) is not None
        except BadManifest:
            return True

    def _is_leased(self, envelope: str) -> bool:
        if envelope not in self._leased:
            self._leased[envelope] = is_held(self.repository.store, envelope, self.grace_s, self.now_s)
        return self._leased[envelope]

    def _is_latest(self, removal: Removal) -> bool:
        try:
            latest = self.repository.latest(removal.envelope_digest)
        except BadManifest:
            return False  # a broken pointer names nothing
        return latest is not None and latest.generation == removal.digest

    def _is_untouched(self, removal: Removal) -> bool:
        """Whether nobody has written it since the plan: what is written again belongs to a publication that will name it."""
        try:
            info = self.repository.store.head(removal.key)
        except ObjectNotFound:
            return False
        return info.modified_s < removal.modified_s + _CLOCK_STEP_S

    def _holds_anything(self, envelope: str) -> bool:
        return any(map(_has_content, holdings(self.repository.store, envelope)))


def _has_content(holding: Holding) -> bool:
    return bool(holding.generations or holding.packs)
