"""The folder that a user names to copy to: a path, and never a place that would become a folder of that strange name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from glowplug.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def target_folder(named: str) -> Path:
    """The folder.

    Args:
        named: a path, or ``file:///path``.

    Raises:
        UsageError: a URL of another kind, a ``~`` that no shell has expanded, or nothing.
    """
    if named.lower().startswith("file:///"):
        return Path(unquote(named[len("file://") :], errors="surrogateescape"))
    found = _SCHEME.match(named)
    if found:
        scheme = found[1].lower()
        if scheme == "file":
            hint = "write file:///absolute/folder, or the plain path"
        else:
            hint = "name a folder of this machine; glowplug weights push brings a folder to a store"
        # Never more of it in the message: it may hold credentials.
        raise UsageError(f"a pull can't write to {scheme}://", object=scheme, hint=hint)
    if named.split("/", maxsplit=1)[0].startswith("~"):
        hint = "write the whole path, or ./~ for a folder of that name"
        raise UsageError(f"{named}: the shell has not put your home folder for ~", object=named, hint=hint)
    if not named or "\0" in named:
        raise UsageError("the target names no folder", object="FOLDER", hint="name the folder to pull to")
    return Path(named)


def refuse_inside(target: Path, source: Path) -> None:
    """Make sure that a copy is not made in what is copied: the next listing would find it, and copy the copy.

    Raises:
        UsageError: the target is the source, or lies in it.
    """
    if target.resolve().is_relative_to(source.resolve()):
        what = f"{target} lies in the folder that is to be copied, {source}"
        raise UsageError(what, object=str(target), hint="name a place outside of it")
