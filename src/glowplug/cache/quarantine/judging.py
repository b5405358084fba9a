"""Judging: from what nodes have reported to verdicts, by whoever may write.

Two nodes that an engine died on, or that could not use it, are enough; one is not, whatever it says, because that node may be the
one that is broken. A wrong signature or digest needs no second witness, but an eye of one's own: a reader that reports one is a
reason to look, and never believed.

What a stolen reader can do: report under two names of nodes, and so have one generation compiled again; and have a generation
read once in vain. However many reports it writes, those of others are read too; the listing takes longer.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.quarantine.testimony import MAX_BYTES, Testimony, now
from glowplug.cache.quarantine.verdicts import Verdict, condemn, condemned
from glowplug.cache.verify import check_pack
from glowplug.errors import GlowplugError, IntegrityError, ObjectNotFound, RemoteError, UnknownKey
from glowplug.units import count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.repository import Repository
    from glowplug.cache.trust import Trust

NODES = 2
"""Different nodes whose testimony makes a generation bad for everyone."""
_MAX_KEYS = 10_000  # keys that are kept of one reader; 4 MB of memory
_MAX_READ = 32  # documents that are read for one generation from one reader's prefix

_KEY = re.compile(rf"{layout.REPORTS}([^/]+)/([0-9a-f]{{64}})/([0-9a-f]{{64}})/([0-9a-f]{{16}})\.json")


def judge_all(
    repository: Repository, trust: Trust, *, deadline: Deadline, envelope: str | None = None, sound: Collection[str] = ()
) -> list[Verdict]:
    """Read all reports, and condemn what they prove. Needs the right to write, and to list the reports.

    Reads a whole pack only where somebody reports a wrong signature or digest, and then only once: a report that proves false is
    deleted, if that is allowed.

    Args:
        repository: where to look.
        trust: to verify generations with.
        deadline: bounds the step.
        envelope: judge this one alone; all if None.
        sound: digests of generations whose every byte this process has verified itself.

    Returns:
        The verdicts that were not there before.

    Raises:
        RemoteError: the store did not answer.
        DeadlineExceeded: the time is up; verdicts given before stay.
    """
    verdicts = []
    bad: dict[str, frozenset[str]] = {}
    for (digest, generation), keys in _reports(repository, envelope, deadline).items():
        if digest not in bad:
            bad[digest] = condemned(repository.store, digest, deadline=deadline)
        if generation in bad[digest] or not _exists(repository, digest, generation):
            continue
        testimonies = list(_testimonies(repository, keys, deadline))
        verdict = _by_reports(repository, digest, generation, testimonies, trust)
        doubts = [testimony for testimony in testimonies if testimony.kind == "integrity"]
        if verdict is None and doubts:
            verdict = None if generation in sound else verify(repository, digest, generation, trust, deadline=deadline)
            if verdict is None:
                _forget(repository, doubts)
        if verdict is not None and condemn(repository.store, verdict):
            verdicts.append(verdict)
    return verdicts


def verify(repository: Repository, envelope: str, generation: str, trust: Trust, *, deadline: Deadline) -> Verdict | None:
    """Look at a generation from its signature to its last byte; the verdict on it if it is not what it should be, else None.

    One that is signed by a key which is not trusted here, or of which a part is missing, is not condemned: others may trust that
    key, and a part may be under way.

    Raises:
        RemoteError: the store did not deliver.
        DeadlineExceeded: the time is up.
    """
    pack = ""
    try:
        manifest = repository.load(envelope, generation, trust)
        pack = manifest.pack.sha256
        check_pack(repository, manifest, deadline=deadline)
    except (UnknownKey, ObjectNotFound):
        return None
    except IntegrityError as error:
        return Verdict(envelope=envelope, generation=generation, reason=error.message, by="verification", at=now(), pack=pack)
    return None


def _reports(repository: Repository, envelope: str | None, deadline: Deadline) -> dict[tuple[str, str], list[str]]:
    """The keys of all reports, by envelope and generation."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    kept: Counter[str] = Counter()
    for info in repository.store.list(layout.REPORTS):
        deadline.check()
        match = _KEY.fullmatch(info.key)
        if match and envelope in (None, match[2]) and kept[match[1]] < _MAX_KEYS:
            kept[match[1]] += 1
            found[match[2], match[3]].append(info.key)
    return found


def _testimonies(repository: Repository, keys: list[str], deadline: Deadline) -> Iterator[Testimony]:
    """What has been said, as far as it can be read. Of each reader a limited number, so that none can crowd out another."""
    for _, of_reader in itertools.groupby(sorted(keys), key=lambda key: key.split("/")[2]):
        for key in itertools.islice(of_reader, _MAX_READ):
            deadline.check()
            with contextlib.suppress(IntegrityError, ObjectNotFound):
                yield Testimony.parse(repository.store.get(key, most_bytes=MAX_BYTES).data, name=key)


def _by_reports(
    repository: Repository, envelope: str, generation: str, testimonies: list[Testimony], trust: Trust
) -> Verdict | None:
    """The verdict on what enough nodes have reported; None if they are not enough."""
    witnesses = {testimony.node: testimony for testimony in testimonies if testimony.kind != "integrity"}
    if len(witnesses) < NODES:
        return None
    first = next(iter(witnesses.values()))
    pack = ""
    with contextlib.suppress(GlowplugError):
        pack = repository.load(envelope, generation, trust).pack.sha256
    return Verdict(
        envelope=envelope,
        generation=generation,
        reason=f"{count(len(witnesses), 'node')} reported it ({first.kind}: {first.reason})",
        by="reports",
        at=now(),
        pack=pack,
        evidence=tuple(testimony.summary for testimony in witnesses.values()),
    )


def _exists(repository: Repository, envelope: str, generation: str) -> bool:
    try:
        repository.store.head(layout.generation_key(envelope, generation))
    except ObjectNotFound:
        return False
    return True


def _forget(repository: Repository, testimonies: list[Testimony]) -> None:
    """Delete reports that have proved false, so that they are not looked into again and again."""
    for testimony in testimonies:
        with contextlib.suppress(RemoteError):  # not everybody who may publish may delete
            repository.store.delete(testimony.key)
