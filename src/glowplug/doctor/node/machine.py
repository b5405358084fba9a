"""The machine's own facts: user, shared memory, memory, processors, limits, accelerators. From ``/proc``, ``/sys`` and ``/dev``."""

from __future__ import annotations

import os
import pwd
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.doctor.node.facts import Devices, Shm, User
from glowplug.doctor.node.files import names, on, text
from glowplug.doctor.node.folders import write_refused
from glowplug.engines.accelerators import accelerators
from glowplug.engines.cpu import cpu_threads
from glowplug.units import KIB
from glowplug.weights.buffer.memory import control_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Variables in which ``getpass.getuser`` looks before it asks for the user of this UID."""
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_NVIDIA, _AMAZON = "0x10de", "0x1d0f"
_DISPLAY = "0x03"  # the PCI class of GPUs, with or without a screen
_NEURON = frozenset(("0x7064", "0x7065", "0x7066", "0x7067", "0x7164", "0x7264", "0x7364", "0x7564", "0x7565"))
"""PCI device ids that the driver of AWS Neuron takes (its neuron_pci.c)."""
_CUDA = ("nvidiactl", "nvidia-uvm")
"""What CUDA opens beside each GPU's own file."""
_DEVICE = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm|neuron\d+|kfd")
_GPU = re.compile(r"nvidia\d+")
_NEURON_DEVICE = re.compile(r"neuron\d+")


def find_user(env: Mapping[str, str], root: str = "/") -> User:
    """As whom this process runs, and where it may write besides the cache."""
    uid = os.geteuid()
    name = next((env[variable] for variable in _NAMES if env.get(variable)), "")
    home = env.get("HOME", "")
    try:
        entry = pwd.getpwuid(uid)
        name, home = name or entry.pw_name, home or entry.pw_dir
    except KeyError:
        pass
    candidates = [env[variable] for variable in _TEMPORARY if env.get(variable)]
    temporary = next((each for each in (*candidates, "/tmp", "/var/tmp") if not write_refused(on(root, each))), "")  # noqa: S108  where temporary files go
    return User(uid, os.getegid(), name, home, write_refused(on(root, home)) if home else "there is none", temporary)


def find_shm(root: str = "/") -> Shm | None:
    """``/dev/shm``; None if there is none."""
    try:
        stats = os.statvfs(on(root, "dev/shm"))
    except OSError:
        return None
    return Shm(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)


def memory_bytes(root: str = "/") -> int:
    """Of the machine; 0 if it can't be read."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", text(on(root, "proc/meminfo")), re.MULTILINE)
    return int(found[1]) * KIB if found else 0


def machine_cpus(root: str = "/") -> int:
    """Logical processors of the machine; 0 if they can't be read."""
    total = 0
    for part in text(on(root, "sys/devices/system/cpu/online")).strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            total += int(last or first) - int(first) + 1
    return total


def usable_cpus(root: str = "/") -> float:
    """Processors that this process may use at once: by affinity, and by the quota of its control groups."""
    own = float(cpu_threads() if root == "/" else machine_cpus(root) or 1)
    return min([own, *_quotas(Path(root))])


def open_files() -> int | None:
    """The hard limit of open files, up to which an engine may raise its own; None for no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def find_devices(env: Mapping[str, str], root: str = "/") -> Devices:
    """Accelerators that can be used here, that the driver knows, and that are on the bus."""
    files = [name for name in names(on(root, "dev")) if _DEVICE.fullmatch(name)]
    gpus = [name for name in files if _GPU.fullmatch(name)]
    missing = tuple(f"/dev/{name}" for name in _CUDA if gpus and name not in files)
    closed = tuple(f"/dev/{name}" for name in files if not _opens(on(root, "dev", name)))
    driven = len(names(on(root, "proc/driver/nvidia/gpus"))) or sum(
        1 for name in names(on(root, "sys/class/neuron_device")) if _NEURON_DEVICE.fullmatch(name)
    )
    return Devices(accelerators(env, root), driven, sum(_on_the_bus(root)), missing, closed)


def in_kubernetes(env: Mapping[str, str], root: str = "/") -> bool:
    """Whether this is a pod, or a node with a kubelet."""
    return bool(env.get("KUBERNETES_SERVICE_HOST")) or os.path.isdir(on(root, "var/lib/kubelet"))


def _opens(path: str) -> bool:
    return os.access(path, os.R_OK | os.W_OK, effective_ids=True)


def _on_the_bus(root: str) -> Iterator[bool]:
    folder = on(root, "sys/bus/pci/devices")
    for name in names(folder):
        vendor, device, kind = (text(os.path.join(folder, name, part)).strip() for part in ("vendor", "device", "class"))
        yield (vendor == _NVIDIA and kind.startswith(_DISPLAY)) or (vendor == _AMAZON and device in _NEURON)


def _quotas(root: Path) -> Iterator[float]:
    for folder in control_groups(root, root / "sys/fs/cgroup", ""):
        quota, _, period = text(folder / "cpu.max").partition(" ")
        yield from _share(quota, period)
    for name in ("cpu", "cpu,cpuacct"):
        for folder in control_groups(root, root / "sys/fs/cgroup" / name, "cpu"):
            yield from _share(text(folder / "cpu.cfs_quota_us"), text(folder / "cpu.cfs_period_us"))


def _share(quota: str, period: str) -> Iterator[float]:
    """Processors by a group's microseconds; none where it has no quota (``max``, ``-1``)."""
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period)
