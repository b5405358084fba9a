"""A local folder with everything of a checkpoint but its weights, for an engine that is to load them through Glowplug.

vLLM hashes the path of its model into its compile cache's key. So the folder is named by the checkpoint's content, and lies at the
same absolute path on every node, whatever HOME and user are: ``/tmp/glowplug-models/<identity>``. A replica in another bucket is
the same folder.

The folder may hold code that the engine runs, and ``/tmp`` belongs to everybody. So nothing is used that another user could have
written or could still exchange: the base must be ours or root's, as must be the folder and each file in it, writable by nobody
else; and every byte is compared with what was fetched. A folder that fails, because a cleaner has removed files from it or somebody
has put it there, is replaced if it is ours, and otherwise passed over for a private one, whose other path costs one compilation.

A folder is written beside its place and renamed, so it is whole or not there: processes that start at once, or are killed half way,
leave no other state. What killed ones leave is removed an hour later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from glowplug.errors import LocalError
from glowplug.units import MIB, count
from glowplug.weights.checkpoint.header_stubs import header_stubs
from glowplug.weights.checkpoint.identity import identity
from glowplug.weights.checkpoint.small_files import MOST_BYTES, read_small_files, small_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.weights.base import Checkpoint, Source

BASE: Final = Path("/tmp/glowplug-models")  # noqa: S108  the same on every node; see above for what makes it safe
_NAME_LENGTH = 32
_STAGE_PREFIX = ".stage-"
_ABANDONED_AFTER_S = 3600.0
_SHARED = stat.S_IWGRP | stat.S_IWOTH
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}


class MetadataFolder(NamedTuple):
    """A folder that an engine may be given as its model."""

    path: Path
    identity: str
    """Of the checkpoint; 64 hex digits, of which the path has the first 32."""
    files: int
    bytes: int
    notice: str
    """What the person who runs this should know, in one sentence; empty if nothing."""


def make_metadata_folder(source: Source, checkpoint: Checkpoint, *, base: Path | None = None) -> MetadataFolder:
    """Fetch the small files of a checkpoint, and put them where an engine finds them, beside the headers of its weight files.

    Memory: all of them, a few MiB as a rule.

    Args:
        source: where the checkpoint is.
        checkpoint: what ``open_checkpoint`` gave for it.
        base: instead of ``/tmp/glowplug-models``.

    Raises:
        RemoteError: a file could not be read.
        LocalError: no place could be written: every disk full, or everything read-only.
    """
    content = read_small_files(source, checkpoint)
    digest = identity(checkpoint, content)
    whole = content | header_stubs(checkpoint)
    _, larger = small_files(checkpoint)
    notices = [f"{', '.join(entry.name for entry in larger)} left out: over {MOST_BYTES // MIB} MiB"] if larger else []
    problem = ""
    for number, place in enumerate(_places(base or BASE)):
        try:
            _make_base(place, 0o700 if number else 0o1777)
            path = _put(place / digest[:_NAME_LENGTH], whole)
        except (_Unsafe, OSError) as error:
            problem = problem or _reason(error, place)
            continue
        if problem:
            notices.append(
                f"{problem}, so the model's files are in {path}; the compile cache of other nodes does not fit this path"
            )
        return MetadataFolder(path, digest, len(content), sum(map(len, content.values())), "; ".join(notices))
    raise LocalError(
        f"no place for the {count(len(content), 'small file')} of {checkpoint.uri}: {problem}",
        object=str(base or BASE),
        hint="make /tmp writable, or mount an emptyDir there",
    )


class _Unsafe(Exception):
    """A place that somebody else controls."""


def _places(base: Path) -> list[Path]:
    """Where to try, best first. All but the first are ours alone."""
    private = f"glowplug-models-{os.geteuid()}"
    places = [base, base.parent / private]
    with contextlib.suppress(OSError):  # no writable temporary folder at all
        places.append(Path(tempfile.gettempdir()) / private)
    return list(dict.fromkeys(places))


def _put(path: Path, content: Mapping[str, bytes]) -> Path:
    """The folder, made or found whole.

    Raises:
        _Unsafe: another user controls it.
        OSError: it can't be written.
    """
    if _is_whole(path, content):
        return path
    _sweep(path.parent)
    stage = _beside(path)
    try:
        _write(stage, content)
        _rename(stage, path, content)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return path


def _make_base(base: Path, mode: int) -> None:
    os.makedirs(base.parent, exist_ok=True)
    try:
        base.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        base.chmod(mode)  # mkdir's own goes through the umask; and what we made nobody else can exchange in a sticky /tmp
    status = os.lstat(base)
    if not stat.S_ISDIR(status.st_mode):
        raise _Unsafe(f"{base} is no folder")
    # Who owns a folder may exchange what is in it, sticky or not.
    if not _is_ours(status):
        raise _Unsafe(f"{base} belongs to user {status.st_uid}")
    if status.st_mode & _SHARED and not status.st_mode & stat.S_ISVTX:
        raise _Unsafe(f"{base} is writable by others, and they could exchange what is in it")


def _is_whole(path: Path, content: Mapping[str, bytes]) -> bool:
    """Whether the folder holds exactly this, and nobody else can change it.

    Raises:
        _Unsafe: it is somebody else's, so it can't be replaced either.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if not _is_ours(status):
        raise _Unsafe(f"{path} belongs to user {status.st_uid}")
    if not stat.S_ISDIR(status.st_mode) or status.st_mode & _SHARED:
        return False
    try:
        return _files(path, "") == set(content) and all(_holds(path / name, expected) for name, expected in content.items())
    except OSError:  # removed or unreadable: then it is not whole
        return False


def _files(folder: Path, prefix: str) -> set[str]:
    """Names of what lies in the folder; of what must not be there, names that no checkpoint has."""
    found: set[str] = set()
    with os.scandir(folder) as children:
        for child in children:
            status = child.stat(follow_symlinks=False)
            if not _is_ours(status) or status.st_mode & _SHARED:
                found.add("/")
            elif stat.S_ISDIR(status.st_mode):
                found |= _files(folder / child.name, f"{prefix}{child.name}/")
            else:
                found.add(prefix + child.name if stat.S_ISREG(status.st_mode) else "/")
    return found


def _holds(path: Path, expected: bytes) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return os.fstat(fd).st_size == len(expected) and file.read() == expected


def _write(stage: Path, content: Mapping[str, bytes]) -> None:
    stage.mkdir(mode=0o700)
    for name, data in content.items():
        path = stage / name
        if path.parent != stage:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.parent.chmod(0o755)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, 0o644)
    stage.chmod(0o755)


def _rename(stage: Path, path: Path, content: Mapping[str, bytes]) -> None:
    for _ in range(3):
        try:
            os.rename(stage, path)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return
        if _is_whole(path, content):  # another process was quicker
            return
        # Ours, and damaged. An engine that still reads it keeps what it has open.
        spoilt = _beside(path)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, spoilt)
        _remove(spoilt)
    raise _Unsafe(f"{path} is replaced again and again")


def _beside(path: Path) -> Path:
    return path.parent / f"{_STAGE_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sweep(base: Path) -> None:
    """Remove what killed processes have left, as far as it is ours."""
    with contextlib.suppress(OSError), os.scandir(base) as children:
        for child in children:
            if not child.name.startswith(_STAGE_PREFIX):
                continue
            with contextlib.suppress(OSError):
                status = child.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _ABANDONED_AFTER_S:
                    _remove(Path(child.path))


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid in {0, os.geteuid()}


def _reason(error: _Unsafe | OSError, place: Path) -> str:
    return str(error) if isinstance(error, _Unsafe) else f"{error.filename or place}: {error.strerror or error}"
