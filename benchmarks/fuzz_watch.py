"""Watches what this process does to the file system: every effect outside of the folder it is allowed is an escape.

Python's audit hooks tell of each open for writing, rename, link, folder, removal and change of mode or times, before it happens and
from every thread. A symbolic link is an escape wherever it lies, for nothing here may make one; so a path that is below the folder
by its letters is below it on the disk too.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ONE_PATH = {
    "os.mkdir": 2,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.truncate": -1,
    "os.chmod": 2,
    "os.chown": 3,
    "os.utime": 3,
    "shutil.rmtree": 1,
}
"""Which argument is the folder's descriptor that the first is relative to; -1 for none."""
_TWO_PATHS = {"os.rename": (2, 3), "os.link": (2, 3)}
_NEVER = frozenset({"os.symlink", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork"})


class Watch:
    """Notes escapes while it is armed. One for a process: a hook can't be removed.

    Attributes:
        escapes: what was about to happen elsewhere.
    """

    def __init__(self) -> None:
        self.escapes: list[str] = []
        self._allowed = ""
        sys.dont_write_bytecode = True  # of a module that a case is the first to load
        sys.addaudithook(self._heard)

    def arm(self, folder: Path) -> None:
        """From now on only this folder may change."""
        self._allowed = os.path.realpath(folder) + os.sep

    def disarm(self) -> None:
        """Anything may change."""
        self._allowed = ""

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._allowed:
            return
        if event == "open":
            flags = arguments[2]
            if isinstance(flags, int) and flags & _WRITING:
                self._check(event, arguments[0], -1)
        elif event in _ONE_PATH:
            at = _ONE_PATH[event]
            self._check(event, arguments[0], arguments[at] if 0 <= at < len(arguments) else -1)
        elif event in _TWO_PATHS:
            for path, at in enumerate(_TWO_PATHS[event]):
                self._check(event, arguments[path], arguments[at])
        elif event in _NEVER:
            self.escapes.append(f"{event} {arguments[:2]!r}")

    def _check(self, event: str, path: object, folder: object) -> None:
        if isinstance(path, int):
            return  # a descriptor, whose opening was seen
        text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else repr(path)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        if not (os.path.abspath(text) + os.sep).startswith(self._allowed):
            self.escapes.append(f"{event} {text!r}")
