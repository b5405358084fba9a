"""How much of a checkpoint is buffered at once: chosen so that the pod is never killed for it.

The buffer counts against the pod's memory limit, and a pod over its limit loses its engine to the kernel. So what is free is read
from where the kernel keeps count: the control group of this process and all groups above it, version 2 or 1, and the node itself.
Reads small files under ``/proc`` and ``/sys``; takes no memory, and never fails: what can't be read is taken for no limit.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.units import GIB, KIB, MIB, format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.weights.base import Mode

MARGIN_BYTES = 512 * MIB
"""Left alone beside the buffer and the engine: our own process, page tables, and whatever else the pod does meanwhile."""
LEAST_WINDOW_BYTES = 64 * MIB
MOST_WINDOW_BYTES = 4 * GIB
"""A larger window makes no load faster: it only evens out how fetching and reading take turns."""
_NO_LIMIT_BYTES = 1 << 60  # version 1 writes about 2 ** 63 where there is none


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """A decision, and why.

    Attributes:
        mode: full or windowed.
        ring_bytes: size of the buffer, in whole pages.
        reason: one line for the user.
    """

    mode: Mode
    ring_bytes: int
    reason: str

    @property
    def plan_bytes(self) -> int | None:
        """``make_plan``'s ``memory_bytes``."""
        return None if self.mode == "full" else self.ring_bytes


@dataclass(frozen=True, slots=True)
class Room:
    """What the kernel says about memory.

    Attributes:
        limit_bytes: the tightest limit of the pod; None if only the node limits it.
        free_bytes: what may still be taken, file cache that the kernel can drop included; None where nothing could be read.
    """

    limit_bytes: int | None
    free_bytes: int | None


def choose_memory(
    size_bytes: int, *, requested: str, engine_bytes: int, largest_tensor_bytes: int, root: Path = Path("/")
) -> MemoryChoice:
    """Full mode if it fits, else a window.

    Full needs ``size_bytes + engine_bytes + MARGIN_BYTES`` free. A window gets what is left after engine and margin, between
    ``LEAST_WINDOW_BYTES`` and ``MOST_WINDOW_BYTES``, and never less than the largest tensor. A size that the user gave is taken as
    it is; it means full where it covers the checkpoint and that fits.

    Args:
        size_bytes: of all tensors that are loaded.
        requested: ``auto``, ``full``, or bytes; ``0`` means the largest tensor.
        engine_bytes: host memory that the engine will take beside the buffer while it loads.
        largest_tensor_bytes: what a window must hold; of a sealed checkpoint, ``plan.least_memory_bytes``.
        root: where ``proc`` and ``sys`` lie; another folder in tests.
    """
    room = find_room(root)
    least = _pages(max(largest_tensor_bytes, 1))
    wish = _wish(requested)
    whole = format_bytes(size_bytes)
    left = None if room.free_bytes is None else room.free_bytes - engine_bytes - MARGIN_BYTES
    asked_for_all = requested == "full" or (wish is not None and wish >= size_bytes)
    if (wish is None or asked_for_all) and (left is None or size_bytes <= left):
        return MemoryChoice("full", _pages(max(size_bytes, 1)), f"weights: {whole} buffered in full ({_said(room)})")
    if wish is not None and not asked_for_all:
        ring = _pages(max(wish, least))
        raised = f", raised from {format_bytes(wish)} to its largest tensor" if wish < least and wish else ""
        tight = f"; that is more than the {format_bytes(max(0, left))} left for it" if left is not None and ring > left else ""
        return MemoryChoice(
            "windowed", ring, f"weights: windowed, {format_bytes(ring)} of {whole} at a time, as asked for{raised}{tight}"
        )
    ring = _pages(max(least, min(max(left or 0, LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES)))
    needs = (
        f"all of it beside the engine ({format_bytes(engine_bytes)}) would not fit" if engine_bytes else "all of it would not fit"
    )
    return MemoryChoice(
        "windowed", ring, f"weights: windowed, {format_bytes(ring)} of {whole} at a time, because {needs} ({_said(room)})"
    )


def _wish(requested: str) -> int | None:
    """Bytes that were asked for; None: whatever suits."""
    if requested in {"auto", "full", ""}:
        return None
    try:
        return parse_bytes(requested, name="host memory")
    except UsageError:
        return None  # whoever reads options has refused it before


def _said(room: Room) -> str:
    limit = "no memory limit" if room.limit_bytes is None else f"memory limit {format_bytes(room.limit_bytes)}"
    return limit if room.free_bytes is None else f"{limit}, {format_bytes(room.free_bytes)} free"


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def find_room(root: Path = Path("/")) -> Room:
    """The pod's tightest limit, and what is free below all limits and on the node."""
    groups = [*_groups_v2(root), *_groups_v1(root)]
    limits = [limit for limit, _ in groups]
    free = [max(0, limit - used) for limit, used in groups]
    available = _fields(root / "proc/meminfo").get("MemAvailable:")
    if available is not None:
        free.append(available * KIB)
    return Room(min(limits, default=None), min(free, default=None))


def _groups_v2(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each limited group from ours up."""
    for base in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"):
        for folder in control_groups(root, base, ""):
            limits = [limit for name in ("memory.max", "memory.high") if (limit := _number(folder / name)) is not None]
            used = _number(folder / "memory.current")
            if limits:
                stat = _fields(folder / "memory.stat")
                yield min(limits), max(0, (used or 0) - stat.get("inactive_file", 0) - stat.get("active_file", 0))


def _groups_v1(root: Path) -> Iterator[tuple[int, int]]:
    for folder in control_groups(root, root / "sys/fs/cgroup/memory", "memory"):
        limit = _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.usage_in_bytes")
        if limit is not None and limit < _NO_LIMIT_BYTES:
            stat = _fields(folder / "memory.stat")
            yield limit, max(0, (used or 0) - stat.get("total_inactive_file", 0) - stat.get("total_active_file", 0))


def control_groups(root: Path, base: Path, controller: str) -> Iterator[Path]:
    """The folder of our group and those above it, as far as they can be seen: a container sees its own group as the root.

    Args:
        root: where ``proc`` lies.
        base: where the groups are mounted.
        controller: of version 1, such as ``memory``; empty for version 2.
    """
    own = ""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            own = path.strip("/")
    parts = [part for part in own.split("/") if part not in {"", "..", "."}]
    for depth in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:depth])


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(" ")
        value = rest.split()[:1]
        if value and value[0].isascii() and value[0].isdecimal():
            found[name] = int(value[0])
    return found
