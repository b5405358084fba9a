"""Verification of what a store holds, without unpacking any of it to disk.

The signature, the manifest and every byte of the pack are checked as a restore would check them. Nothing is repaired.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.deadline import unbounded
from glowplug.cache.fetch import ObjectStream
from glowplug.cache.pack import read_pack
from glowplug.errors import GlowplugError, ObjectNotFound
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import Manifest
    from glowplug.cache.repository import Repository, Shelf
    from glowplug.cache.trust import Trust


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one generation; nothing if ``problem`` is empty."""

    envelope_digest: str
    generation: str
    """Its digest, or ``latest`` for the pointer itself."""
    files: int
    size_bytes: int
    problem: str


def verify_shelf(
    repository: Repository, shelf: Shelf, trust: Trust, *, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding]:
    """Check every generation of an envelope, and that its pointer names one of them. Nothing is raised.

    One that is gone by now is no finding: ``gc`` has removed it since the shelf was listed.
    """
    for stored in shelf.generations:
        finding = verify_generation(repository, shelf.envelope_digest, stored.digest, trust, progress=progress)
        if not finding.problem or _is_there(repository, shelf.envelope_digest, stored.digest):
            yield finding
    try:
        latest = repository.latest(shelf.envelope_digest)
    except GlowplugError as error:
        yield Finding(shelf.envelope_digest, "latest", 0, 0, error.line())
        return
    if latest is not None and latest.generation not in {stored.digest for stored in shelf.generations}:
        yield verify_generation(repository, shelf.envelope_digest, latest.generation, trust, progress=progress)


def _is_there(repository: Repository, envelope_digest: str, generation: str) -> bool:
    try:
        repository.store.head(layout.generation_key(envelope_digest, generation))
    except ObjectNotFound:
        return False
    except GlowplugError:
        return True  # not known, and its problem is told
    return True


def verify_generation(
    repository: Repository,
    envelope_digest: str,
    generation: str,
    trust: Trust,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Finding:
    """Check a generation from its signature to its last byte. Every problem is the finding's, none is raised."""
    files = size_bytes = 0
    try:
        manifest = repository.load(envelope_digest, generation, trust)
        files, size_bytes = len(manifest.files), manifest.size_bytes
        check_pack(repository, manifest, progress=progress)
    except GlowplugError as error:
        return Finding(envelope_digest, generation, files, size_bytes, error.line())
    return Finding(envelope_digest, generation, files, size_bytes, "")


def check_pack(
    repository: Repository,
    manifest: Manifest,
    *,
    progress: Callable[[int], None] = lambda _: None,
    deadline: Deadline | None = None,
) -> None:
    """Read a pack to its end as a restore does: its length, every header and every file's digest are compared.

    Raises:
        BadPack: it is not what the manifest says.
        RemoteError: the store did not deliver.
        DeadlineExceeded: the time is up.
    """
    key = layout.pack_key(manifest.envelope.digest, manifest.pack.sha256)
    with ObjectStream(repository.store, key, manifest.pack.size_bytes, deadline=deadline or unbounded("verify")) as source:
        for _, piece in read_pack(manifest.files, source, name=key, slab=itertools.repeat(bytearray(MIB)).__next__):
            progress(len(piece))
