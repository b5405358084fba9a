"""The live cache folder: private to one running engine, on this node's own disk.

Engines compile into it and load from it; sharing happens by copying in and out. Two starts never share a live folder: each wrapper
holds a lock on its own for as long as it runs. The engine inherits the lock, so one that outlives its wrapper, because that alone
was killed, keeps its folder, and the next start takes another. A wrapper that ends by itself gives the lock back for all who have
inherited it: what an engine leaves running keeps no folder. The folder's path is the same on every node (for an envelope), because
some engines hash the path or write absolute paths into their caches.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

SLOTS = 16
"""Engines with one envelope that can run on one node at a time, each in a folder of its own."""
_NAME_DIGITS = 16
_MAX_NOTE_BYTES = 64


def default_base(env: Mapping[str, str]) -> Path:
    """Where live folders lie unless ``--cache-dir`` says otherwise; an absolute path.

    ``$XDG_CACHE_HOME/glowplug/live`` where that variable is set, since then the user has said where caches belong; otherwise
    ``/var/tmp/glowplug-<uid>``, or the same under ``/tmp`` where that can't be written. Never the home folder unasked: homes are
    often on NFS, where compile caches break.
    """
    if env.get("XDG_CACHE_HOME", "").startswith("/"):
        return Path(env["XDG_CACHE_HOME"]) / "glowplug" / "live"
    name, parents = f"glowplug-{os.getuid()}", ["/var/tmp"]  # noqa: S108  the folder inside is private, and checked
    with contextlib.suppress(FileNotFoundError):  # nothing can be written at all
        parents.append(tempfile.gettempdir())
    for parent in parents:
        if os.access(parent, os.W_OK | os.X_OK):
            return Path(parent) / name
    return Path("/var/tmp") / name  # noqa: S108  claim() says why it can't be used


@dataclass(frozen=True, slots=True)
class LiveRoot:
    """A live folder and the lock on it. Released by ``close``, or by the kernel when the process and its engine have ended."""

    path: Path
    _lock: BinaryIO

    @property
    def note(self) -> str:
        """What a process that had this folder has left for the next one. That process is dead, or has given the folder back."""
        try:
            return os.pread(self._lock.fileno(), _MAX_NOTE_BYTES, 0).decode("ascii", "replace")
        except (OSError, ValueError):
            return ""

    def leave_note(self, text: str) -> None:
        """Tell whoever has the folder next. At most 64 characters of ASCII; where it can't be written nothing is left."""
        with contextlib.suppress(OSError, ValueError):
            os.ftruncate(self._lock.fileno(), 0)
            os.pwrite(self._lock.fileno(), text.encode("ascii")[:_MAX_NOTE_BYTES], 0)

    def close(self) -> None:
        """Give the folder back; its content stays for the next start on this node. May be called twice."""
        if not self._lock.closed:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # for those who have inherited it as well
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def live_folder(base: Path, envelope_digest: str) -> Path:
    """Where the first engine with this envelope keeps its cache on this node. It may not exist."""
    return base / envelope_digest[:_NAME_DIGITS]


def claim(base: Path, envelope_digest: str, *, slots: int = SLOTS) -> LiveRoot:
    """Make, or find, the live folder of an envelope, and lock it.

    A folder that another running engine holds, or that belongs to another user, is passed over for the next one (``-2``, ``-3``,
    up to ``-16``). What a start left in it that was killed is swept up.

    Args:
        base: ``--cache-dir``; made if it is missing.
        envelope_digest: names the folder.
        slots: how many folders are tried; 1 for the one that the next start will take.

    Raises:
        LocalError: the base can't be written, or is somebody else's.
    """
    name = envelope_digest[:_NAME_DIGITS]
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_base(base)
        problems: list[str] = []
        for slot in range(1, slots + 1):
            path = base / (name if slot == 1 else f"{name}-{slot}")
            try:
                live = LiveRoot(path, _lock(path))
            except BlockingIOError:
                problems.append(f"{path.name} is in use by another engine")
            except PermissionError as error:
                problems.append(error.strerror or str(error))
            else:
                sweep(path)
                return live
    except OSError as error:
        raise _unusable(base, f"{error.strerror or error}: {error.filename}" if error.filename else str(error)) from None
    if slots == 1:
        raise _unusable(base, problems[0])
    raise _unusable(base, f"none of its {slots} folders for this envelope is free: {problems[0]}")


def sweep(root: Path) -> None:
    """Remove what a process left that was killed in a live folder. It held the lock that is the caller's now, so it is dead."""
    notes = root / ".glowplug"
    for stale in [*notes.glob("staging-*"), *notes.glob("pack-*.tmp")]:
        if stale.is_dir() and not stale.is_symlink():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                stale.unlink()


def canonical(path: Path) -> Path:
    """The path that the first engine of an envelope gets, for that of any of them: what is published must fit there."""
    name = path.name.partition("-")[0]
    return path.with_name(name) if len(name) == _NAME_DIGITS else path


def check_base(base: Path) -> None:
    """Refuse a folder that somebody else has put where ours would be, in ``/tmp`` or the like: he could swap what lies in it.

    Raises:
        PermissionError: it is such a folder.
        OSError: it can't be looked at.
    """
    owner = base.stat().st_uid
    if owner not in {os.geteuid(), 0} and base.parent.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(f"it belongs to uid {owner}, and its parent can be written by anybody")


def _lock(path: Path) -> BinaryIO:
    notes = path / ".glowplug"
    path.mkdir(exist_ok=True, mode=0o700)
    info = path.stat(follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        # Whoever can write here can make the engine run his code.
        raise PermissionError(f"{path} is not a private folder of uid {os.geteuid()}")
    notes.mkdir(exist_ok=True, mode=0o700)
    descriptor = os.open(notes / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    lock = open(descriptor, "r+b", buffering=0)  # noqa: SIM115  held for as long as the engine runs
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(descriptor, True)  # noqa: FBT003  by the engine alone: ``subprocess`` closes what is not named
    except OSError:
        lock.close()
        raise
    return lock


def _unusable(base: Path, problem: str) -> LocalError:
    return LocalError(
        f"cannot use the cache folder {base}: {problem}",
        object=str(base),
        hint="name a writable folder on this node's own disk with --cache-dir, such as an emptyDir",
    )
