"""hostPath volumes that mean the node's NVMe, and land on its root disk without a word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from glowplug.doctor import placing
from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import PodTemplate

AUTO_MOUNT, KARPENTER_MOUNT = "/mnt/.ephemeral", "/mnt/k8s-disks"
_CHECKED = re.compile(r"mountpoint\s+-q|findmnt|/proc/(?:self/)?mountinfo|glowplug")
_SYSTEM = re.compile(r"/(?:dev|proc|sys|run|etc|lib|usr|boot|opt/aws|var/lib/kubelet|var/run|var/log)(?:/|$)")


class _HostPath(NamedTuple):
    pod: PodTemplate
    path: str
    type: str
    place: int


def _host_paths(manifests: Manifests) -> Iterator[_HostPath]:
    """Those of pods with an accelerator, that are mounted for writing."""
    for pod in manifests.accelerated:
        written = {mount.volume for container in pod.containers for mount in container.mounts if not mount.read_only}
        for name, (volume, index) in pod.volumes.items():
            path = text(volume, "hostPath", "path")
            if path and name in written and not _SYSTEM.match(path):
                yield _HostPath(pod, path, text(volume, "hostPath", "type"), index)


def _on_nvme(path: str) -> bool:
    return path.startswith((AUTO_MOUNT, KARPENTER_MOUNT))


def _made_silently(manifests: Manifests) -> Iterator[Problem]:
    for each in _host_paths(manifests):
        checked = any(_CHECKED.search(container.script) for container in (*each.pod.inits, *each.pod.containers))
        silent = each.type == "DirectoryOrCreate" or (not each.type and _on_nvme(each.path))
        if silent and not checked:
            yield each.pod.problem(
                ("volumes", each.place, "hostPath"), f"{each.path} is made on the root disk where nothing else is mounted there"
            )


def _wrong_mount(manifests: Manifests) -> Iterator[Problem]:
    for each in _host_paths(manifests):
        kind = placing.compute(manifests, each.pod)
        path = ("volumes", each.place, "hostPath", "path")
        if kind == "auto" and each.path.startswith(KARPENTER_MOUNT):
            yield each.pod.problem(path, f"EKS Auto Mode mounts its disks at {AUTO_MOUNT}, not at {KARPENTER_MOUNT}/0")
        elif kind == "karpenter" and each.path.startswith(AUTO_MOUNT) and not _bottlerocket(manifests, each.pod):
            yield each.pod.problem(path, f"{AUTO_MOUNT} is EKS Auto Mode's; here the disks are at {KARPENTER_MOUNT}/0")


def _bottlerocket(manifests: Manifests, pod: PodTemplate) -> bool:
    classes = [placing.class_of(manifests, pool) for pool in placing.pools(manifests, pod)]
    aliases = [text(alias, "alias") for each in classes if each for alias in items(each.body, "spec", "amiSelectorTerms")]
    families = [text(each.body, "spec", "amiFamily") for each in classes if each]
    return any(name.lower().startswith("bottlerocket") for name in (*aliases, *families)) or None in classes


def _not_formatted(manifests: Manifests) -> Iterator[Problem]:
    for each in _host_paths(manifests):
        if not each.path.startswith(KARPENTER_MOUNT):
            continue
        for pool in placing.pools(manifests, each.pod):
            node_class = placing.class_of(manifests, pool)
            if node_class is None or node_class.kind != "EC2NodeClass" or "userData" in tree(node_class.body, "spec"):
                continue
            if text(node_class.body, "spec", "instanceStorePolicy") != "RAID0":
                what = (
                    f"{each.pod.object.label} mounts {each.path}, and instanceStorePolicy is not RAID0: the NVMe disks stay unused"
                )
                yield node_class.problem(("spec", "instanceStorePolicy"), what)


def _auto_size(manifests: Manifests) -> Iterator[Problem]:
    for each in _host_paths(manifests):
        if not each.path.startswith(AUTO_MOUNT):
            continue
        for pool in placing.pools(manifests, each.pod):
            node_class = placing.class_of(manifests, pool)
            size = text(node_class.body, "spec", "ephemeralStorage", "size") if node_class is not None else ""
            if node_class is not None and node_class.kind == "NodeClass" and size:
                what = f"ephemeralStorage.size is {size}: whether Auto Mode then uses the NVMe disks is documented both ways"
                yield node_class.problem(("spec", "ephemeralStorage", "size"), what)


def _no_nvme(manifests: Manifests) -> Iterator[Problem]:
    for each in _host_paths(manifests):
        if _on_nvme(each.path):
            bare = sorted({kind.name for kind in placing.instance_types(manifests, each.pod) if not kind.nvme_bytes})
            if bare:
                yield each.pod.problem(
                    ("volumes", each.place, "hostPath"),
                    f"{', '.join(bare[:3])} has no NVMe instance store: {each.path} is the root disk",
                )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP205",
        "hostPath that is made where no disk is mounted",
        "warning",
        "With DirectoryOrCreate the kubelet makes the folder wherever it is. If the NVMe disks are not mounted there, that is the"
        " root volume: no error, no warning, about 1 GB/s in place of 30.",
        "Mount the disks' own folder with type: Directory and use a subPath, or let an init container check with mountpoint -q.",
        ("A40", "A41", "A48"),
        _made_silently,
    ),
    Rule(
        "GP206",
        "NVMe path of another kind of node",
        "error",
        "Auto Mode mounts its disks at /mnt/.ephemeral, Karpenter's AL2 and AL2023 nodes at /mnt/k8s-disks/0. The other one's"
        " path is a plain folder on the root volume. Bottlerocket on a Karpenter of one's own differs from both, and is not"
        " judged.",
        "Use the path that goes with the node class.",
        ("A42", "A43", "A46", "X13"),
        _wrong_mount,
    ),
    Rule(
        "GP207",
        "NVMe disks that nobody formats",
        "error",
        "Karpenter leaves instance store volumes alone unless the node class says instanceStorePolicy: RAID0; the path is then on"
        " the root volume.",
        "Set spec.instanceStorePolicy: RAID0 in the EC2NodeClass.",
        ("A43", "A45"),
        _not_formatted,
    ),
    Rule(
        "GP208",
        "Auto Mode's storage size, which decides about NVMe",
        "info",
        "The EKS guide says that Auto Mode uses the instance store only if ephemeralStorage.size is less than the NVMe capacity;"
        " a merged change of the same documentation (PR #1076) says equal to or above. The mount table of a node is what tells.",
        "Look on a node: glowplug doctor --node --cache-dir /mnt/.ephemeral names the disks that it lies on.",
        ("A44", "X14"),
        _auto_size,
    ),
    Rule(
        "GP217",
        "NVMe path on an instance type without NVMe",
        "error",
        "The type has no instance store: the folder is on the root volume, whatever the node class says.",
        "Choose a type with instance store, or take the path away.",
        ("A40", "A47"),
        _no_nvme,
    ),
)
