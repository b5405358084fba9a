"""Everything that a store holds, envelope by envelope, from one listing and without reading any of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.repository import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.store.base import ObjectInfo, Store

_DIGEST = "[0-9a-f]{64}"
_KEY = re.compile(
    rf"{layout.ROOT}(?P<envelope>{_DIGEST})/"
    rf"(?:(?P<one>envelope\.json|latest|lease)|(?P<many>generations|packs|quarantine)/(?P<digest>{_DIGEST})\.(?:json|tar\.zst))"
)
_REPORT = re.compile(rf"{layout.REPORTS}[^/]+/(?P<envelope>{_DIGEST})/(?P<generation>{_DIGEST})/[^/]+\.json")


@dataclass
class Holding:
    """The objects of one envelope. What is not Glowplug's is not among them.

    Attributes:
        envelope_digest: whose.
        envelope, latest, lease: these objects, where there are any.
        generations, packs, verdicts: the others, by digest; a verdict's is its generation's.
    """

    envelope_digest: str
    envelope: ObjectInfo | None = None
    latest: ObjectInfo | None = None
    lease: ObjectInfo | None = None
    generations: list[Stored] = field(default_factory=list)
    packs: list[Stored] = field(default_factory=list)
    verdicts: list[Stored] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Of its generations and packs; the rest is small."""
        return sum(stored.size_bytes for stored in self.generations + self.packs)

    @property
    def published_s(self) -> float:
        """When a generation or a pack was last written, by the store's clock; 0 if there are none."""
        return max((stored.modified_s for stored in self.generations + self.packs), default=0.0)

    @property
    def touched_s(self) -> float:
        """When a publication last did anything, as far as can be seen. Leases and verdicts don't count."""
        others = [info.modified_s for info in (self.envelope, self.latest) if info is not None]
        return max([self.published_s, *others])


@dataclass(frozen=True, slots=True)
class Report:
    """One node's evidence against a generation."""

    key: str
    envelope_digest: str
    generation: str
    size_bytes: int
    modified_s: float


def holdings(store: Store, envelope_digest: str = "") -> Iterator[Holding]:
    """Every envelope's objects, in digest order. Memory: one envelope's names.

    Args:
        store: which.
        envelope_digest: only this one's; all if empty.
    """
    current = None
    for info in store.list(layout.ROOT + (f"{envelope_digest}/" if envelope_digest else "")):
        match = _KEY.fullmatch(info.key)
        if match is None:
            continue
        if current is None or current.envelope_digest != match["envelope"]:
            if current is not None:
                yield current
            current = Holding(match["envelope"])
        _add(current, match, info)
    if current is not None:
        yield current


def reports(store: Store) -> Iterator[Report]:
    """Every report, in key order."""
    for info in store.list(layout.REPORTS):
        if match := _REPORT.fullmatch(info.key):
            yield Report(info.key, match["envelope"], match["generation"], info.size_bytes, info.modified_s)


def _add(holding: Holding, match: re.Match[str], info: ObjectInfo) -> None:
    match match["one"], match["many"]:
        case "envelope.json", _:
            holding.envelope = info
        case "latest", _:
            holding.latest = info
        case "lease", _:
            holding.lease = info
        case _, "generations":
            holding.generations.append(Stored(match["digest"], info.size_bytes, info.modified_s))
        case _, "packs":
            holding.packs.append(Stored(match["digest"], info.size_bytes, info.modified_s))
        case _:
            holding.verdicts.append(Stored(match["digest"], info.size_bytes, info.modified_s))
