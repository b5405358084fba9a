"""Which files a checkpoint in a folder has: two folders deep, without what is hidden, through links.

A link to a file is followed wherever it leads, as a snapshot in the Hugging Face cache is made of links into ``blobs``; so is one
to a folder. What must not happen is a walk that never ends, or a copy that silently lacks a file. So a link to a folder that it
lies in itself is passed over, as nothing is below it that was not listed before; and one that leads nowhere is an error that names
it, if an engine reads a file of that name.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import LocalError, ObjectNotFound
from glowplug.store import local_errors
from glowplug.weights.base import Entry
from glowplug.weights.checkpoint.small_files import is_small_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 2
_MOST_FILES = 20_000
_NOWHERE = {errno.ENOENT, errno.ELOOP}


class _Folder(NamedTuple):
    """A folder to be listed."""

    path: str
    prefix: str
    """Of the names of its files."""
    chain: tuple[str, ...]
    """Where it really lies, and where the folders that led to it do."""
    link: str
    """The link among these; empty if there is none."""

    def below(self, child: os.DirEntry[str]) -> _Folder | None:
        """A folder in it; None where it is too deep, or leads back to where it lies."""
        if len(self.chain) > _DEPTH:
            return None
        real, link = os.path.join(self.chain[-1], child.name), self.link
        if child.is_symlink():
            real, link = os.path.realpath(child.path), link or child.path
            if any(os.path.commonpath((place, real)) == real for place in self.chain):
                return None
        return _Folder(child.path, f"{self.prefix}{child.name}/", (*self.chain, real), link)


def walk(path: str) -> Iterator[Entry]:
    """Every file below a folder that can be one of a checkpoint's, in no order.

    Args:
        path: of the folder, absolute.

    Raises:
        ObjectNotFound: a file that an engine reads is a link that leads nowhere.
        Forbidden: a folder, or what a link leads to, can't be looked at.
        LocalError: more files than any checkpoint has; names the link that led to them, if one did.
    """
    count = 0
    pending = [_Folder(path, "", (os.path.realpath(path),), "")]
    while pending:
        folder = pending.pop()
        with local_errors.named(folder.path), os.scandir(folder.path) as children:
            for child in children:
                name = folder.prefix + child.name
                status = None if child.name.startswith(".") or not _is_text(name) else _status(child, name)
                if status is None:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if (below := folder.below(child)) is not None:
                        pending.append(below)
                elif stat.S_ISREG(status.st_mode):
                    count += 1
                    if count > _MOST_FILES:
                        raise _too_many(folder.link, path)
                    yield entry_of(name, status)


def entry_of(name: str, status: os.stat_result) -> Entry:
    """A file of this name and status."""
    return Entry(name, status.st_size, etag_of(status))


def etag_of(status: os.stat_result) -> str:
    """What changes when a file is replaced or written."""
    return f'"{status.st_dev:x}-{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'


def _status(child: os.DirEntry[str], name: str) -> os.stat_result | None:
    """Of what is there, through links; None where a link leads nowhere and no engine would miss it."""
    try:
        return os.stat(child.path)
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise local_errors.translate(error, child.path) from error
        if child.is_symlink() and (name.endswith(".safetensors") or is_small_file(name)):
            leads = "that leads in a circle" if error.errno == errno.ELOOP else "to a file that is not there"
            hint = "download the model again, or remove the link"
            raise ObjectNotFound(f"{child.path} is a link {leads}", object=child.path, hint=hint) from error
        return None


def _too_many(link: str, path: str) -> LocalError:
    hint = "remove this link, or name the folder of one checkpoint" if link else "name the folder of one checkpoint"
    return LocalError(f"{link or path} holds more than {_MOST_FILES} files", object=link or path, hint=hint)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
