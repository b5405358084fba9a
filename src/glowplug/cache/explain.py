"""Why a start missed: the envelopes in the store that come nearest, and the components in which they differ.

A first step: it compares envelopes. What the engine's own key saw differently is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.envelope import Difference, Envelope, compare
from glowplug.errors import IntegrityError, ObjectNotFound

if TYPE_CHECKING:
    from glowplug.cache.repository import Repository

_MOST_ENVELOPES = 200  # one small read each


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An envelope in the store, and how it differs from the one asked for."""

    digest: str
    differences: tuple[Difference, ...]


def neighbours(repository: Repository, envelope: Envelope, *, limit: int = 3) -> list[Neighbour]:
    """The envelopes that differ least from this one, nearest first. An equal one comes first, with no differences.

    Reads at most the 200 first envelopes of the store. An envelope that can't be read is passed over.
    """
    found: list[Neighbour] = []
    for number, shelf in enumerate(repository.shelves()):
        if number >= _MOST_ENVELOPES:
            break
        try:
            theirs = repository.envelope(shelf.envelope_digest)
        except (IntegrityError, ObjectNotFound):
            continue
        found.append(Neighbour(shelf.envelope_digest, tuple(compare(envelope, theirs))))
    found.sort(key=lambda neighbour: (len(neighbour.differences), neighbour.digest))
    return found[:limit]
