"""Which generation a start may use: the pointer's, unless it is bad; then the newest of the others that is good.

In the good case this costs one small request more than loading the manifest, sent at the same time. It fails open: where the
store does not tell what is bad, the pointer's generation is used, for the node's own notes and a cold restart bound the harm.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.quarantine.notes import noted
from glowplug.cache.quarantine.verdicts import condemned
from glowplug.errors import GlowplugError, IntegrityError, ObjectNotFound
from glowplug.threads import begin
from glowplug.units import count

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import Manifest
    from glowplug.cache.repository import Pointer, Repository
    from glowplug.cache.trust import Trust

MAX_BAD = 3
"""With so many bad generations of one envelope nothing more is published for it: the next would be bad as well, and each of them
costs two nodes a crash. A person looks at the reason, and lifts the verdicts."""
_TRIES = 4  # manifests of others that are loaded; each may have some megabytes


@dataclass(frozen=True, slots=True)
class Choice:
    """What a start may use.

    Attributes:
        manifest: of the generation, its signature verified; None if there is none to use.
        reason: why there is none, or why it is not the pointer's, as a clause; empty otherwise.
        bad: digests of this envelope's generations that must not be used here, also from the live folder.
        may_publish: False where so many are bad that the next would hardly be better.
        notice: why it is not known what is bad in the store, as a line; empty where it is known.
    """

    manifest: Manifest | None
    reason: str = ""
    bad: frozenset[str] = frozenset()
    may_publish: bool = True
    notice: str = ""


def choose(
    repository: Repository, envelope_digest: str, pointer: Pointer, trust: Trust, *, live_base: Path | None, deadline: Deadline
) -> Choice:
    """Which generation to restore.

    Blocks for at most the deadline plus one request's own time-out.

    Args:
        repository: where to look.
        envelope_digest: of the start.
        pointer: what ``latest`` says.
        trust: whose signatures count.
        live_base: the folder in which live folders lie, and this node's notes; None for no notes.
        deadline: bounds the step.

    Raises:
        GlowplugError: as ``Repository.load``, for the pointer's generation, if that is not bad.
        DeadlineExceeded: the time is up.
    """
    ours = noted(live_base) if live_base is not None else frozenset()
    verdicts = _Verdicts(repository, envelope_digest, deadline)
    if pointer.generation in ours:
        verdicts.fetch()
        why = f"generation {pointer.generation[:12]} has hurt an engine on this node before"
        return _another(repository, envelope_digest, trust, verdicts, ours, why, deadline)
    verdicts.begin()
    manifest, failure = None, None
    try:
        manifest = repository.load(envelope_digest, pointer.generation, trust)
    except GlowplugError as error:  # raised below, unless the generation does not matter any more
        failure = error
    verdicts.wait()
    deadline.check()
    if pointer.generation in verdicts.bad:
        why = f"generation {pointer.generation[:12]} is in quarantine (glowplug cache quarantine {envelope_digest[:12]} shows why)"
        return _another(repository, envelope_digest, trust, verdicts, ours, why, deadline)
    if failure is not None:
        raise failure
    return Choice(manifest, bad=ours | verdicts.bad, notice=verdicts.notice)


class _Verdicts:
    """What the store says is bad, asked for in a thread where one can be had."""

    def __init__(self, repository: Repository, envelope_digest: str, deadline: Deadline) -> None:
        self._repository = repository
        self._envelope_digest = envelope_digest
        self._deadline = deadline
        self._thread = threading.Thread(target=self.fetch, name="glowplug-quarantine", daemon=True)
        self._begun = False
        self.bad: frozenset[str] = frozenset()
        self.notice = ""

    def begin(self) -> None:
        """Ask, and return at once."""
        self._begun = begin(self._thread)

    def wait(self) -> None:
        """Until the answer is there, or the deadline has passed."""
        if not self._begun:
            self.fetch()
            return
        self._thread.join(self._deadline.remaining_s)
        if self._thread.is_alive():
            self.notice = "which generations are bad could not be asked in time"

    def fetch(self) -> None:
        """Ask, and wait for the answer."""
        try:
            self.bad = condemned(self._repository.store, self._envelope_digest, deadline=self._deadline)
        except GlowplugError as error:
            self.notice = f"which generations are bad could not be asked: {error.line()}"


def _another(
    repository: Repository,
    envelope_digest: str,
    trust: Trust,
    verdicts: _Verdicts,
    ours: frozenset[str],
    why: str,
    deadline: Deadline,
) -> Choice:
    """The newest generation that is good, or none. What can't be loaded is passed over."""
    bad = ours | verdicts.bad
    found: list[str] = []
    for shelf in repository.shelves(envelope_digest):
        deadline.check()
        found = [stored.digest for stored in shelf.generations]
    bad_here = verdicts.bad.union(bad.intersection(found))
    may_publish = len(bad_here) < MAX_BAD
    if not may_publish:
        lift = f"glowplug cache quarantine {envelope_digest[:12]} --lift"
        why = (
            f"{count(len(bad_here), 'generation')} of this envelope were bad, so no more is published for it ({lift} changes that)"
        )
    good = [generation for generation in found if generation not in bad]
    for generation in good[:_TRIES]:
        deadline.check()
        try:
            manifest = repository.load(envelope_digest, generation, trust)
        except (IntegrityError, ObjectNotFound):
            continue
        return Choice(manifest, f"{why}; {generation[:12]} is used in its place", bad, may_publish, verdicts.notice)
    return Choice(None, f"{why}, and there is no other", bad, may_publish, verdicts.notice)
