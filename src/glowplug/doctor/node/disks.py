"""Which disks lie under a mount, from ``/sys``: through partitions, RAID arrays, logical volumes and loop devices.

``/sys`` shows the machine's disks in a container too, with the model that tells an instance store from EBS. No device is opened.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from glowplug.doctor.node.facts import Disk
from glowplug.doctor.node.files import names, text
from glowplug.doctor.node.mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.node.facts import Mount

_SECTOR_BYTES = 512  # of /sys/block/*/size, whatever the disk's own are
_FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs")
"""Those that have a folder in ``/sys/fs`` for each mounted device, which a container sees for all of the machine."""
_DEEPEST = 8


class Disks:
    """The block devices of a machine.

    Args:
        root: where ``proc`` and ``sys`` lie; a test's own tree.
        mounts: the mount table.
    """

    def __init__(self, root: str, mounts: tuple[Mount, ...]) -> None:
        self._root = root
        self._mounts = mounts

    def all(self) -> tuple[Disk, ...]:
        """The disks themselves, by name: no arrays, volumes, loop or memory devices, and none without a medium."""
        found = (self._disk(name) for name in names(self._path("sys/block")) if self._is_hardware(name))
        return tuple(disk for disk in found if disk.size_bytes)

    def under(self, mount: Mount) -> tuple[str, tuple[Disk, ...]]:
        """The name of the mounted device and the disks that it lies on; both empty where no device is mounted or none is seen."""
        name = self._device(mount)
        if not name:
            return "", ()
        return name, tuple(self._disk(disk) for disk in dict.fromkeys(self._below(name, _DEEPEST)))

    def _device(self, mount: Mount) -> str:
        by_number = self._path("sys/dev/block", mount.device)
        if os.path.exists(by_number):
            return os.path.basename(os.path.realpath(by_number))
        # btrfs and others show a number that no device has, and the name.
        name = mount.source.removeprefix("/dev/")
        if name == mount.source:
            return ""
        if name.startswith("mapper/"):
            volumes = (each for each in names(self._path("sys/block")) if each.startswith("dm-"))
            wanted = name.removeprefix("mapper/")
            return next((each for each in volumes if text(self._path("sys/block", each, "dm/name")) == wanted), "")
        return name if os.path.exists(self._path("sys/class/block", name)) else ""

    def _below(self, name: str, depth: int) -> Iterator[str]:
        if depth == 0:
            return
        folder = os.path.realpath(self._path("sys/class/block", name))
        parts = names(os.path.join(folder, "slaves"))
        if parts:
            for part in parts:
                yield from self._below(part, depth - 1)
        elif os.path.exists(os.path.join(folder, "partition")):
            yield from self._below(os.path.basename(os.path.dirname(folder)), depth - 1)
        elif backing := text(os.path.join(folder, "loop/backing_file")):
            mount = mount_of(backing, self._mounts)
            below = self._device(mount) if mount is not None else ""
            yield from self._below(below, depth - 1) if below else ()
        else:
            yield name

    def _disk(self, name: str) -> Disk:
        folder = self._path("sys/class/block", name)
        sectors = text(os.path.join(folder, "size"))
        size_bytes = int(sectors) * _SECTOR_BYTES if sectors.isdecimal() else 0
        return Disk(name, text(os.path.join(folder, "device/model")), size_bytes, self._is_in_use(name))

    def _is_hardware(self, name: str) -> bool:
        place = os.path.realpath(self._path("sys/block", name))
        # Of a disk with several paths the kernel makes a virtual one, and hides the others.
        virtual = "/devices/virtual/" in place and "/nvme-subsystem/" not in place
        hidden = text(os.path.join(place, "hidden")) == "1"
        return not virtual and not hidden and not name.startswith(("sr", "fd"))

    def _is_in_use(self, name: str) -> bool:
        folder = os.path.realpath(self._path("sys/class/block", name))
        parts = [each for each in names(folder) if os.path.exists(os.path.join(folder, each, "partition"))]
        for part, place in ((name, folder), *((each, os.path.join(folder, each)) for each in parts)):
            number = text(os.path.join(place, "dev"))
            if (
                names(os.path.join(place, "holders"))
                or any(os.path.exists(self._path("sys/fs", fs, part)) for fs in _FILE_SYSTEMS)
                or any(mount.source == f"/dev/{part}" or (number and mount.device == number) for mount in self._mounts)
                or f"/dev/{part} " in text(self._path("proc/swaps"))
            ):
                return True
        return False

    def _path(self, *parts: str) -> str:
        return os.path.join(self._root, *parts)
