"""Inductor's precompiled C++ headers: lent to the engine before it starts, and taken over from it once it is ready.

torch keeps them in ``<temporary folder>/torchinductor_<user>/precompiled_headers``, whatever the variables say (``_HEADER_DIR`` in
``torch/_inductor/codecache.py``, 2.13), and with an empty temporary folder builds them anew, 4 to 9 s, even where every kernel is
found. So they are hard-linked (copied, across file systems) from the live folder into torch's, and what the engine built or read
there is linked back. No folder is replaced by a link to ours: torch would fail on it once ours is gone, and so would an engine that
was started without Glowplug.

A header is touched only under the lock that torch itself takes to build it, and only in folders that nobody else can write: what
lies there ends up in compiled code. The names are hashes of all that went into a header, so several engines may share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import stat
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.cache.families import INDUCTOR_HEADERS
from glowplug.cache.usage import unread_atime_ns
from glowplug.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FOLDER = "precompiled_headers"
_HEADER, _BUILT = ".h", ".h.gch"
# How GCC's files begin. Another compiler (clang) refuses a header whose sources have other times, and the build fails with it; GCC
# passes over what it can't use.
_GCC = b"gpch"


@dataclass(frozen=True, slots=True)
class Lent:
    """Headers that an engine may use.

    Attributes:
        ours: the live folder's headers.
        theirs: the engine's own folder.
        there: names of the headers that lay in it before the engine started, with the access time of each.
        given: names of those that were put there for it.
    """

    ours: Path
    theirs: Path
    there: Mapping[str, int]
    given: set[str] = field(default_factory=set)

    def give(self) -> None:
        """Put the live folder's headers where the engine's torch looks for them. May be called again when more have come.

        Raises:
            LocalError: as ``lend``.
        """
        with _named_errors(self.theirs):
            names = _complete(self.ours)
            if names:
                for folder in (self.theirs.parent, self.theirs):
                    with contextlib.suppress(FileExistsError):
                        folder.mkdir(mode=0o700)
            if not _is_private(self.theirs):
                return
            for name in sorted(set(names) - set(_complete(self.theirs))):
                with _lock(self.theirs, name) as locked:
                    if locked:
                        _put(self.ours, self.theirs, name)
                        self.given.add(name)

    def take_back(self) -> None:
        """Remove what was put there: the engine died, perhaps of it. Another engine that uses it builds it anew when it next looks.

        Raises:
            LocalError: as ``lend``.
        """
        with _named_errors(self.theirs):
            for name in self.given if _is_private(self.theirs) else ():
                (self.theirs / f"{name}{_BUILT}").unlink(missing_ok=True)

    def take_over(self) -> int:
        """Link what the engine has built, or read, into the live folder. How many headers; blocks for a copy across file systems.

        Raises:
            LocalError: as ``lend``.
        """
        taken = 0
        with _named_errors(self.theirs):
            if not _is_private(self.theirs):
                return 0
            for name in _complete(self.theirs):
                if (self.ours / f"{name}{_BUILT}").exists() or not self._was_used(name):
                    continue
                with _lock(self.theirs, name) as locked:
                    if locked and _is_gcc(self.theirs / f"{name}{_BUILT}"):
                        self.ours.mkdir(mode=0o700, exist_ok=True)
                        _put(self.theirs, self.ours, name)
                        taken += 1
        return taken

    def _was_used(self, name: str) -> bool:
        return name not in self.there or (self.theirs / f"{name}{_BUILT}").stat().st_atime_ns > self.there[name]


def lend(root: Path, env: Mapping[str, str]) -> Lent | None:
    """Put the live folder's headers where the engine's torch looks for them.

    Args:
        root: the live folder.
        env: the engine's environment.

    Returns:
        What to take over later; None where the engine has no temporary folder.

    Raises:
        LocalError: the engine's folder can be written by somebody else, or not by us.
    """
    temp = _temp_folder(env)
    if temp is None:
        return None
    ours, theirs = root / INDUCTOR_HEADERS.name, temp / f"torchinductor_{_user(env)}" / _FOLDER
    with _named_errors(theirs):
        there = {name: _mark_unread(theirs / f"{name}{_BUILT}") for name in _complete(theirs)} if _is_private(theirs) else {}
    lent = Lent(ours, theirs, there)
    lent.give()
    return lent


def _temp_folder(env: Mapping[str, str]) -> Path | None:
    """What ``tempfile.gettempdir()`` gives in a process with this environment."""
    named = [env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)]
    for folder in (*named, "/tmp", "/var/tmp", "/usr/tmp", os.curdir):  # noqa: S108  Python's own list
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return Path(os.path.abspath(folder))
    return None


def _user(env: Mapping[str, str]) -> str:
    """The name in torch's folder: ``getpass.getuser()`` in a process with this environment, made a file name as torch does."""
    name = next((env[variable] for variable in ("LOGNAME", "USER", "LNAME", "USERNAME") if env.get(variable)), "")
    if not name:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)


def _is_private(folder: Path) -> bool:
    """Whether the folder is there. Raises PermissionError if anybody but this user could put something into it."""
    for path in (folder.parent, folder):
        try:
            info = path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is not a private folder of uid {os.geteuid()}")
    temp = folder.parent.parent
    if temp.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise PermissionError(f"{temp} can be written by anybody, and is not sticky")
    return True


def _complete(folder: Path) -> list[str]:
    """Names of the headers that have been built: both files are there, and the second is not empty."""
    try:
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}
    except FileNotFoundError:
        return []
    return sorted(
        name.removesuffix(_BUILT)
        for name, size in sizes.items()
        if name.endswith(_BUILT) and size and name.removesuffix(".gch") in sizes
    )


def _mark_unread(path: Path) -> int:
    """Set the access time back, so that the next reading moves it, and return what it is then."""
    info = path.stat()
    os.utime(path, ns=(unread_atime_ns(info.st_mtime_ns), info.st_mtime_ns))
    return unread_atime_ns(info.st_mtime_ns)


def _is_gcc(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_GCC)) == _GCC


@contextlib.contextmanager
def _lock(folder: Path, name: str) -> Iterator[bool]:
    """Hold the lock under which torch builds a header. False, and no waiting, where another process has it."""
    locks = folder / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(locks / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = False
        else:
            locked = True
        yield locked
    finally:
        os.close(descriptor)


def _put(source: Path, target: Path, name: str) -> None:
    """Link a header's two files into another folder, the built one last. What is there already stays."""
    for suffix in (_HEADER, _BUILT):
        have, want = source / f"{name}{suffix}", target / f"{name}{suffix}"
        with contextlib.suppress(FileExistsError):
            try:
                os.link(have, want, follow_symlinks=False)
            except FileExistsError:
                raise
            except OSError:  # another file system, or one without links
                _copy(have, want)


def _copy(have: Path, want: Path) -> None:
    part = want.with_name(f".glowplug-{uuid.uuid4().hex}.tmp")
    try:
        shutil.copy2(have, part, follow_symlinks=False)
        os.rename(part, want)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalError(
            f"precompiled headers are built anew, and not shared: {error}",
            object=str(folder),
            hint="set TMPDIR to a folder that only this user can write",
        ) from error
