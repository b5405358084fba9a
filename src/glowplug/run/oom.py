"""Whether the kernel has killed something of ours because memory ran out: a counter of the control group.

An engine that is killed so would be killed without the cache too, so it says nothing against the cache.
"""

from __future__ import annotations

from pathlib import Path

_COUNTER = "oom_kill"


def oom_kills(*, root: str = "/sys/fs/cgroup", proc: str = "/proc/self/cgroup") -> int | None:
    """How many processes of this control group the kernel has killed for want of memory; None where that can't be told.

    Args:
        root: where control groups are mounted, version 2 or 1.
        proc: which group this process is in.
    """
    try:
        lines = [line.split(":", 2) for line in Path(proc).read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            folders, name = (f"{root}{path}", root), "memory.events"
        elif "memory" in controllers.split(","):
            folders, name = (f"{root}/memory{path}", f"{root}/memory"), "memory.oom_control"
        else:
            continue
        for folder in folders:  # the second: in a container that sees its own group as the root
            found = _counter(Path(folder, name))
            if found is not None:
                return found
    return None


def _counter(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == _COUNTER:
                return int(value)
    except (OSError, ValueError):
        return None
    return None
