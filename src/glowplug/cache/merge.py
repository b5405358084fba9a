"""Two engines have compiled different things for one envelope: a generation that holds both.

Whoever finds that ``latest`` has moved since its engine started must not displace what another engine has published. So the other
generation is fetched and verified like any restore, into a private folder, the running engine's files are linked in beside it, and
the union is packed. The live folder itself is read and never written.

Where both hold a file under one name, the published one counts, whatever the times say. Both were compiled for the same envelope,
so either is good; but the published generation then stays whole, as its publisher and its readers have proven it, and a fleet in
which every replica compiles the same thing with other bytes comes to rest instead of replacing one another's files for ever. What
this can cost is an entry in an index that was written twice (vLLM's ``vllm_compile_cache.py``): one compile in the next start,
which then publishes it with nobody to merge with. What counts as new is therefore a compiled file's *name*; a file that was only
written again, and notes beside compiled code, never make a generation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowplug.cache import layout
from glowplug.cache.capture import Captured, capture, scan_tree
from glowplug.cache.fetch import ObjectStream
from glowplug.cache.pack import TreeChanged
from glowplug.cache.quarantine.verdicts import condemned
from glowplug.cache.restore import check_space
from glowplug.cache.tree import complete
from glowplug.cache.unpack import make_folders, unpack
from glowplug.errors import BadManifest, BadPack, Forbidden, IncompatibleError, IntegrityError, ObjectNotFound, UnknownKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from glowplug.cache.capture import Joined
    from glowplug.cache.deadline import Deadline
    from glowplug.cache.envelope import Envelope
    from glowplug.cache.families import Family
    from glowplug.cache.manifest import Manifest
    from glowplug.cache.repository import Pointer, Repository
    from glowplug.cache.secrets import SecretScan
    from glowplug.cache.tree import TreeFile
    from glowplug.cache.trust import Signer, Trust

_ATTEMPTS = 4  # in each of them somebody else has moved the pointer; what is left over waits for the next interval


class Tainted(IncompatibleError):
    """The tree began as a generation that is in quarantine by now, so nothing that holds it is published."""


class Doubted(IncompatibleError):
    """The newest generation is bad by this node's word alone, so it is neither joined nor displaced."""


class Unjoinable(BadPack):
    """The other generation's pack is damaged or gone, so nobody can use that generation."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A live tree, and what is known of where it comes from.

    Attributes:
        root: its folder; the process holds the lock on it.
        families: what belongs to it.
        ranks: ranks of this node.
        settle_s: how long it must have been quiet before it is packed.
        restored: the generation that was put into it; None if none was.
        known: generations that need not be joined, because the tree holds them.
        doubted: generations that this node passes over by its own word.
    """

    root: Path
    families: Sequence[Family]
    ranks: int
    settle_s: float
    restored: str | None = None
    known: Collection[str] = ()
    doubted: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """How the publication of a tree ended.

    Attributes:
        state: ``published``: the tree as it is; ``joined``: with what others had published; ``contained``: the newest generation
            has every compiled file of it already; ``overtaken``: others were quicker, each time.
        manifest: of the newest generation; of ours, which nothing names, where it was overtaken.
        left_out: groups of files of which something was missing, each with what.
    """

    state: Literal["published", "joined", "contained", "overtaken"]
    manifest: Manifest
    left_out: tuple[str, ...] = ()


def names_all(manifest: Manifest, files: Sequence[TreeFile]) -> bool:
    """Whether a generation has every compiled file of a tree, by name."""
    names = {entry.path for entry in manifest.files}
    return all(file.path in names for file in files if file.compiled)


def publish_tree(
    repository: Repository,
    envelope: Envelope,
    tree: Tree,
    signer: Signer,
    trust: Trust,
    *,
    may_displace: bool,
    cold_start_s: float | None,
    scan_secrets: SecretScan,
    deadline: Deadline,
    progress: Callable[[int], None] = lambda _: None,
) -> Publication:
    """Make a tree, with all that others have published meanwhile, the newest generation.

    Nothing is packed, and nothing written, if the newest generation has every compiled file of the tree already.

    Args:
        repository: where it goes.
        envelope: for which starts it is good.
        tree: the live tree.
        signer: signs the manifest.
        trust: whose generations are joined.
        may_displace: whether a generation that nobody trusted here has signed may be replaced.
        cold_start_s: seconds to ready without a cache, if known.
        scan_secrets: looks at every byte.
        deadline: bounds all of it.
        progress: told how many bytes have been packed since the last call.

    Raises:
        Tainted: the tree holds a generation in quarantine.
        Doubted: this node alone has found the newest generation bad.
        UnknownKey: the newest generation is a stranger's, and may not be replaced.
        GlowplugError: as ``capture``.
    """
    for attempt in range(_ATTEMPTS):
        pointer = newest(repository, envelope.digest)
        theirs = _to_join(repository, envelope.digest, tree, pointer, trust, may_displace=may_displace)
        files, _ = complete(tree.root, tree.families, scan_tree(tree.root, tree.families))
        if theirs is not None and files and names_all(theirs, files):
            return Publication("contained", theirs)
        captured = _capture(repository, envelope, tree, signer, theirs, pointer, cold_start_s, scan_secrets, deadline, progress)
        if captured.published:
            return Publication("published" if theirs is None else "joined", captured.manifest, captured.left_out)
        if attempt + 1 == _ATTEMPTS:
            return Publication("overtaken", captured.manifest)
    raise AssertionError("the last attempt returns or raises")


def newest(repository: Repository, envelope_digest: str) -> Pointer | None:
    """What ``latest`` says; None for a pointer that names nothing: it is replaced by whoever publishes."""
    try:
        return repository.latest(envelope_digest)
    except BadManifest:
        return None


def _to_join(
    repository: Repository, envelope_digest: str, tree: Tree, pointer: Pointer | None, trust: Trust, *, may_displace: bool
) -> Manifest | None:
    """The newest generation, if the tree must be joined with it."""
    bad: Collection[str] = ()
    if tree.restored or pointer is not None:
        with contextlib.suppress(Forbidden):  # without the right to list, verdicts can't be asked for
            bad = condemned(repository.store, envelope_digest)
    if tree.restored in bad:
        raise Tainted(
            f"generation {(tree.restored or '')[:12]}, which this engine started with, is in quarantine",
            object=tree.restored or "",
            hint="the next cold start publishes a new one",
        )
    if pointer is None or pointer.generation in bad:
        return None
    if pointer.generation in tree.doubted:
        raise Doubted(
            f"generation {pointer.generation[:12]} is bad by this node's word alone, so nothing takes its place",
            object=pointer.generation,
            hint="a second node that reports it puts it into quarantine; glowplug cache quarantine does so by hand",
        )
    if pointer.generation in tree.known:
        return None
    try:
        return repository.load(envelope_digest, pointer.generation, trust)
    except UnknownKey:
        if not may_displace:
            raise
    except (IntegrityError, ObjectNotFound):
        pass  # it can't be used, by anybody
    return None


def _capture(
    repository: Repository,
    envelope: Envelope,
    tree: Tree,
    signer: Signer,
    theirs: Manifest | None,
    pointer: Pointer | None,
    cold_start_s: float | None,
    scan_secrets: SecretScan,
    deadline: Deadline,
    progress: Callable[[int], None],
) -> Captured:
    def packed(joined: Joined | None) -> Captured:
        recorded_s = theirs.cold_start_s if theirs is not None else None
        return capture(
            repository,
            envelope,
            tree.root,
            tree.families,
            signer,
            replaces=pointer,
            cold_start_s=cold_start_s if recorded_s is None else recorded_s,
            ranks=tree.ranks,
            settle_s=tree.settle_s,
            scan_secrets=scan_secrets,
            deadline=deadline,
            progress=progress,
            joined=joined,
        )

    if theirs is None:
        return packed(None)
    try:
        return packed(lambda files: join(repository, theirs, tree.root, files, deadline=deadline))
    except Unjoinable:
        return packed(None)


@contextlib.contextmanager
def join(repository: Repository, theirs: Manifest, root: Path, files: Sequence[TreeFile], *, deadline: Deadline) -> Iterator[Path]:
    """A folder with a generation's files and, under other names, a live tree's; gone afterwards.

    Beside the live folders, where a restore stages as well, and swept like its own if the process is killed. The live files are
    linked, not copied. Takes the generation's unpacked bytes on that disk.

    Args:
        repository: has the generation.
        theirs: its manifest, verified.
        root: the live tree.
        files: of the live tree.
        deadline: checked between pieces.

    Raises:
        Unjoinable: the pack is gone, or not what the manifest says.
        TreeChanged: a file of the live tree has vanished.
        LocalError: no room.
        OSError: the folder can't be written.
    """
    staging = root / ".glowplug" / f"staging-{uuid.uuid4().hex}"
    key = layout.pack_key(theirs.envelope.digest, theirs.pack.sha256)
    check_space(root, theirs.size_bytes)
    try:
        make_folders(str(staging), set())
        try:
            with ObjectStream(repository.store, key, theirs.pack.size_bytes, deadline=deadline) as source:
                unpack(theirs.files, source, staging, name=key, deadline=deadline, progress=lambda _: None)
        except (IntegrityError, ObjectNotFound) as error:
            raise Unjoinable(error.message, object=error.object, hint=error.hint) from error
        _link(root, files, staging)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _link(root: Path, files: Sequence[TreeFile], staging: Path) -> None:
    made: set[str] = set()
    for file in files:
        target = os.path.join(staging, file.path)
        try:
            # Where a path is a file in one tree and a folder in the other, the published one counts.
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                make_folders(os.path.dirname(target), made)
                os.link(os.path.join(root, file.path), target, follow_symlinks=False)
        except FileNotFoundError as error:
            raise TreeChanged(f"{file.path}: {error.strerror}", object=file.path) from None
