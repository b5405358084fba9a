"""Capture: a live cache tree becomes a new generation.

Only a tree that is complete and quiet is captured, its content is read once, and the publication is a handful of conditional
writes with the pointer last. Captures run beside a serving engine, at low priority, and may be called off at any moment: then
there is nothing to see but a temporary file, which the next capture sweeps up.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from glowplug import __version__, temporary
from glowplug.cache.families import FAMILIES
from glowplug.cache.manifest import MAX_BYTES, MAX_FILES, Manifest, check_path
from glowplug.cache.pack import TreeChanged, write_pack
from glowplug.cache.tree import complete, scan
from glowplug.errors import BadManifest, IncompatibleError, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.envelope import Envelope
    from glowplug.cache.families import Family
    from glowplug.cache.repository import Pointer, Repository
    from glowplug.cache.secrets import SecretScan
    from glowplug.cache.tree import TreeFile
    from glowplug.cache.trust import Signer

    Joined: TypeAlias = Callable[[Sequence[TreeFile]], contextlib.AbstractContextManager[Path]]
    """Gives a folder in which the files of a live tree lie beside others, for as long as they are packed."""

_ATTEMPTS = 3
_PACKS = re.compile(r"pack-.*\.tmp")
_RANK = re.compile(r"(^|/)(rank_\d+_\d+)/")


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture that came to an end."""

    manifest: Manifest
    published: bool
    """False if another publisher was quicker; theirs is the newest."""
    left_out: tuple[str, ...] = ()
    """Groups of files of which something was missing, each with what: they are not part of it."""


class Incomplete(IncompatibleError):
    """The tree lacks what a complete compile cache of this many ranks has."""


def wait_until_quiet(
    root: Path, families: Sequence[Family], *, settle_s: float, deadline: Deadline, wait: Callable[[float], object] = time.sleep
) -> list[TreeFile]:
    """Wait until no file has been added, removed or changed for a while, and return the tree as it then is.

    Args:
        root: the live tree.
        families: what belongs to it.
        settle_s: how long nothing may change.
        deadline: bounds the waiting.
        wait: sleeps; a test may replace it.

    Raises:
        DeadlineExceeded: it never became quiet.
        LocalError: a folder of it can't be read.
    """
    files = scan_tree(root, families)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < settle_s:
        deadline.check()
        wait(min(0.5, settle_s))
        now = scan_tree(root, families)
        if [file.state for file in now] != [file.state for file in files]:
            quiet_since = time.monotonic()
        files = now
    return files


def check_publishable(files: Sequence[TreeFile]) -> None:
    """Refuse names, times and sizes that every reader would refuse in the manifest.

    Raises:
        LocalError: and names the file.
    """
    size_bytes = sum(file.size_bytes for file in files)
    if len(files) > MAX_FILES or size_bytes > MAX_BYTES:
        raise LocalError(
            f"the tree has {len(files)} files and {size_bytes} bytes, and a generation at most {MAX_FILES} and {MAX_BYTES}",
            object=files[0].path,
            hint="empty the live folder",
        )
    for file in files:
        try:
            check_path(file.path)
        except BadManifest as error:
            raise LocalError(f"{error.message}, so the tree can't be published", object=error.object, hint="delete it") from None
        if file.mtime_ns < 0:
            raise LocalError(f"{file.path} was last changed before 1970", object=file.path, hint="touch it")


def check_complete(files: Sequence[TreeFile], *, ranks: int) -> None:
    """Refuse a tree in which some ranks have saved their compiled graphs and others have not (vllm #35061).

    Args:
        files: the tree.
        ranks: how many ranks of this node write one.

    Raises:
        Incomplete: and names what is missing.
    """
    by_key: dict[str, set[str]] = {}
    for file in files:
        if match := _RANK.search(file.path):
            by_key.setdefault(file.path[: match.start()], set()).add(match[2])
    for key, found in by_key.items():
        if len(found) < ranks:
            raise Incomplete(
                f"{key} holds {len(found)} of {ranks} ranks ({', '.join(sorted(found))})",
                object=key,
                hint="a rank failed to save its graphs; see the engine's log",
            )


def capture(
    repository: Repository,
    envelope: Envelope,
    root: Path,
    families: Sequence[Family],
    signer: Signer,
    *,
    replaces: Pointer | None,
    cold_start_s: float | None,
    ranks: int,
    settle_s: float,
    scan_secrets: SecretScan,
    deadline: Deadline,
    progress: Callable[[int], None] = lambda _: None,
    joined: Joined | None = None,
) -> Captured:
    """Pack the tree and publish it.

    Args:
        repository: where it goes.
        envelope: for which starts it is good.
        root: the live tree.
        families: what belongs to it.
        signer: signs the manifest.
        replaces: the pointer as read before the capture.
        cold_start_s: seconds to ready without a cache, if known.
        ranks: ranks of this node.
        settle_s: how long the tree must have been quiet.
        scan_secrets: looks at every byte.
        deadline: bounds all of it.
        progress: told how many bytes have been packed since the last call.
        joined: if given, what is packed is the folder that it gives.

    Raises:
        LocalError: nothing to publish, the tree never stops changing, or there is no room for the pack.
        SecretFound: the tree holds a secret.
        Incomplete: a rank's part is missing.
        RemoteError: the store did not take it.
        DeadlineExceeded: the time is up.
    """
    for attempt in range(_ATTEMPTS):
        files = wait_until_quiet(root, families, settle_s=settle_s, deadline=deadline)
        if not files:
            raise LocalError(f"{root} holds no cache files", object=str(root), hint="the engine compiled nothing")
        check_complete(files, ranks=ranks)
        files, left_out = complete(root, families, files)
        if not files:
            raise LocalError(f"{root} holds nothing complete: {left_out[0]}", object=str(root), hint="see the engine's log")
        check_publishable(files)
        with _spool_file(repository, root) as (path, stream):
            try:
                with _whole(root, files, joined) as (folder, members):
                    entries, pack = write_pack(folder, members, stream, scan=scan_secrets, deadline=deadline, progress=progress)
                stream.flush()
            except TreeChanged:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            manifest = Manifest(
                envelope=envelope,
                files=entries,
                pack=pack,
                cold_start_s=None if cold_start_s is None else round(cold_start_s, 3),
                created_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                producer=f"glowplug {__version__}",
            )
            scan_secrets.check_values("the envelope or a file's name", manifest.document)
            if _overtaken(repository, envelope.digest, replaces):
                return Captured(manifest, published=False, left_out=tuple(left_out))
            published = repository.publish(manifest, path, signer, replaces=replaces, deadline=deadline)
            return Captured(manifest, published, tuple(left_out))
    raise AssertionError("the last attempt returns or raises")


@contextlib.contextmanager
def _spool_file(repository: Repository, root: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A temporary file for the pack, in the store's spool if it has one, else beside the tree; gone afterwards."""
    folder = repository.store.spool or root / ".glowplug"
    path = folder / f"pack-{uuid.uuid4().hex}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.sweep(folder, _PACKS)
        with open(temporary.create(path), "wb") as stream:
            yield path, stream
    except OSError as error:
        raise LocalError(
            f"cannot write the pack to {folder}: {error.strerror or error}", object=str(folder), hint="free space on its disk"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _whole(root: Path, files: Sequence[TreeFile], joined: Joined | None) -> Iterator[tuple[Path, Sequence[TreeFile]]]:
    """The folder to pack, and its files: the live tree, or its union with another generation."""
    if joined is None:
        yield root, files
        return
    with joined(files) as folder:
        members = scan_tree(folder, FAMILIES.values())  # also of families that this launch does not write
        check_publishable(members)
        yield folder, members


def _overtaken(repository: Repository, envelope_digest: str, replaces: Pointer | None) -> bool:
    """Whether the pointer has moved already, so that the pack need not be sent. Only the write itself decides."""
    try:
        return repository.latest(envelope_digest) != replaces
    except BadManifest:  # it names nothing, and is replaced
        return False


def scan_tree(root: Path, families: Iterable[Family]) -> list[TreeFile]:
    """The files of a live tree. Raises LocalError for a folder that can't be read."""
    try:
        return scan(root, families)
    except OSError as error:
        path = str(error.filename or root)
        raise LocalError(
            f"cannot read {path}: {error.strerror or error}", object=path, hint="what can't be read whole is not published"
        ) from error
