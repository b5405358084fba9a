"""Machines made of files: ``/proc``, ``/sys`` and ``/dev`` as nodes and pods of EKS show them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NVME = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"
GB = 10**9
PODS = "/kubelet/pods/7f0c/volumes"


class Machine:
    """A tree below a folder; without anything it is a machine that tells nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mounts: list[str] = []
        for folder in (
            "proc/self",
            "sys/block",
            "sys/dev/block",
            "sys/class/block",
            "sys/devices",
            "dev/shm",
            "tmp",
            "home",
            "mnt",
        ):
            (root / folder).mkdir(parents=True)

    def __str__(self) -> str:
        return str(self.root)

    def write(self, path: str, text: str = "") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def folder(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        return place

    def disk(self, name, number, *, model="", size_gb=100, partitions=(), place=None):
        """A disk of hardware, with partitions by name and number."""
        folder = place or f"sys/devices/pci0000:00/0000:00:1f.0/{name}ctrl/{name}"
        self.write(f"{folder}/size", f"{size_gb * GB // 512}\n")
        self.write(f"{folder}/dev", f"{number}\n")
        if model:
            self.write(f"{folder}/device/model", f"{model:<40}\n")
        self._known(name, number, folder, is_disk=True)
        for part, part_number in partitions:
            self.write(f"{folder}/{part}/partition", "1\n")
            self.write(f"{folder}/{part}/dev", f"{part_number}\n")
            self._known(part, part_number, f"{folder}/{part}")

    def made_of(self, name, number, parts):
        """An array or a volume that is made of other devices."""
        folder = f"sys/devices/virtual/block/{name}"
        self.write(f"{folder}/size", "1\n")
        self.write(f"{folder}/dev", f"{number}\n")
        self._known(name, number, folder, is_disk=True)
        for part in parts:
            place = os.path.realpath(self.root / "sys/class/block" / part)
            (self.folder(f"{folder}/slaves") / part).symlink_to(place)
            (self.folder(f"{os.path.relpath(place, self.root)}/holders") / name).touch()

    def _known(self, name, number, folder, *, is_disk=False):
        for link in (f"sys/dev/block/{number}", f"sys/class/block/{name}", *([f"sys/block/{name}"] if is_disk else [])):
            (self.root / link).symlink_to(self.root / folder)

    def mount(self, point, fs, source, number, *, part="/", options="rw,relatime"):
        """A line of the mount table; the folder is made."""
        self.folder(point)
        escaped = [text.replace(" ", "\\040") for text in (part, point, source)]
        line = f"{len(self._mounts) + 20} 1 {number} {escaped[0]} {escaped[1]} {options} shared:1 - {fs} {escaped[2]} {options}"
        self._mounts.append(line)
        self.write("proc/self/mountinfo", "\n".join(self._mounts) + "\n")

    def amazon(self, instance_type):
        self.write("sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n")
        self.write("sys/devices/virtual/dmi/id/product_name", f"{instance_type}\n")

    def pci(self, number, vendor, device, kind):
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            self.write(f"sys/bus/pci/devices/0000:00:{number:02x}.0/{name}", f"{value}\n")

    def gpus(self, total, *, usable=None, model="NVIDIA L4", driver="570.86.15"):
        """GPUs of NVIDIA with their driver, of which some may be used here."""
        for minor in range(total):
            self.pci(minor, "0x10de", "0x27b8", "0x030200")
            if driver:
                information = f"Model: \t\t {model}\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
                self.write(f"proc/driver/nvidia/gpus/0000:00:{minor:02x}.0/information", information)
        if driver:
            self.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Release Build\n")
        usable = range(total) if usable is None else usable
        for name in [f"nvidia{minor}" for minor in usable] + (["nvidiactl", "nvidia-uvm"] if usable else []):
            self.write(f"dev/{name}")

    def neurons(self, total):
        for number in range(total):
            self.pci(number, "0x1d0f", "0x7164", "0x088000")
            self.write(f"sys/class/neuron_device/neuron{number}/info/x", "")
            self.write(f"dev/neuron{number}")


def eks_disks(machine: Machine, *, formatted=True) -> Machine:
    """A root volume of EBS, and two disks of the machine itself in an array, as AL2023's setup-local-disks makes it."""
    machine.disk("nvme0n1", "259:0", model=EBS, partitions=[("nvme0n1p1", "259:3"), ("nvme0n1p128", "259:4")])
    for index in (1, 2):
        machine.disk(f"nvme{index}n1", f"259:{index}", model=NVME, size_gb=3800)
    if formatted:
        machine.made_of("md127", "9:127", ["nvme1n1", "nvme2n1"])
        (machine.folder("sys/fs/xfs") / "md127").mkdir()
    return machine


def node(machine: Machine, *, formatted=True) -> Machine:
    """The node itself: /mnt/k8s-disks/0 is the array, and the kubelet's folder lies on it."""
    eks_disks(machine, formatted=formatted)
    machine.mount("/", "xfs", "/dev/nvme0n1p1", "259:3")
    machine.folder("/mnt/k8s-disks/0")
    machine.folder("/var/lib/kubelet")
    if formatted:
        machine.mount("/mnt/k8s-disks/0", "xfs", "/dev/md127", "9:127")
        machine.mount("/var/lib/kubelet", "xfs", "/dev/md127", "9:127", part="/kubelet")
    machine.amazon("g6.12xlarge")
    return machine


def pod(machine: Machine, *, part="", formatted=True) -> Machine:
    """A pod on such a node with a volume at /cache; without ``part``, an emptyDir on the array."""
    eks_disks(machine, formatted=formatted)
    layer = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    machine.mount("/", "overlay", "overlay", "0:210", options=f"rw,upperdir={layer}/88/fs,workdir={layer}/88/work")
    machine.mount("/dev/shm", "tmpfs", "shm", "0:205", options="rw,size=65536k")
    if part:
        machine.mount("/cache", "xfs", "/dev/nvme0n1p1", "259:3", part=part)
    else:
        machine.mount("/cache", "xfs", "/dev/md127", "9:127", part=f"{PODS}/kubernetes.io~empty-dir/cache")
    machine.amazon("g6.12xlarge")
    return machine
