"""The mount table of this process: which file system lies under a path.

In a container it shows what was mounted into it, and of each volume the path on the node's file system. That tells a folder of the
node's root volume from a disk that was mounted there, which the path alone does not.
"""

from __future__ import annotations

import os.path
import re
from typing import TYPE_CHECKING

from glowplug.doctor.node.facts import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPED = re.compile(r"\\([0-7]{3})")


def read_mounts(root: str = "/") -> tuple[Mount, ...]:
    """All, in the order in which they were mounted; none where ``/proc`` can't be read.

    Args:
        root: where ``proc`` lies; a test's own tree.
    """
    try:
        with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    return tuple(mount for line in lines if (mount := _parse(line)) is not None)


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """What is mounted nearest above an absolute path without links. Of several at one point the last hides the others."""
    found: Mount | None = None
    for mount in mounts:
        holds = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if holds and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _parse(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")
    if not separator or len(fields) < 6 or len(kind) < 2:
        return None
    return Mount(point=_plain(fields[4]), root=_plain(fields[3]), fs=kind[0], source=_plain(kind[1]), device=fields[2])


def _plain(text: str) -> str:
    """Blanks and backslashes as they are: the kernel writes them in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
