"""The cache folder: can it be used, on which disk does it lie, and is there room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Problem, Rule
from glowplug.units import GIB, count, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.node.facts import Disk, NodeFacts

_OBJECT = "cache folder"
_NVME_POINTS = ("/mnt/k8s-disks", "/mnt/.ephemeral")
_NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "wekafs", "fuse.glusterfs", "fuse.juicefs",
        "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.sshfs", "fuse.goofys", "fuse.ceph", "fuse.blobfuse2",
    }
)  # fmt: skip
_MEMORY = ("tmpfs", "ramfs")
_ROOM_BYTES = 2 * GIB  # what glowplug plan reckons for a live cache
_ROOM_INODES = 10_000
_EVICTED_BYTES, _EVICTED_INODES = 0.10, 0.05  # nodefs.available and nodefs.inodesFree, the kubelet's defaults
_LEAST_JUDGED_BYTES = GIB


def _problem(facts: NodeFacts, field: str, message: str) -> Problem:
    return Problem(_OBJECT, field, message, facts.cache.path)


def models(disks: tuple[Disk, ...]) -> str:
    """Disks in a few words: ``2 x Amazon EC2 NVMe Instance Storage (nvme1n1, nvme2n1)``; the names alone without a model."""
    kinds: dict[str, list[str]] = {}
    for disk in disks:
        kinds.setdefault(disk.model, []).append(disk.name)
    return ", ".join(_kind(model, names) for model, names in kinds.items())


def _kind(model: str, names: list[str]) -> str:
    number = f"{len(names)} x " if len(names) > 1 else ""
    return f"{number}{model} ({', '.join(names)})" if model else ", ".join(names)


def _cant_write(facts: NodeFacts) -> Iterator[Problem]:
    reason = facts.cache.refusal("write")
    if reason:
        where = "" if facts.cache.tried == facts.cache.path else f" in {facts.cache.tried}, where it would be made"
        yield _problem(facts, "write", f"uid {facts.user.uid} can't write{where}: {reason}")


def _cant_map(facts: NodeFacts) -> Iterator[Problem]:
    reason = facts.cache.refusal("map")
    if reason:
        point = f" (is {facts.cache.mount.point} mounted noexec?)" if facts.cache.mount is not None else ""
        yield _problem(facts, "map", f"no code can be loaded from it: {reason}{point}")


def _cant_rename(facts: NodeFacts) -> Iterator[Problem]:
    reason = facts.cache.refusal("rename", "lock")
    if reason:
        yield _problem(facts, "rename", f"files can't be renamed or locked: {reason}")


def _not_on_nvme(facts: NodeFacts) -> Iterator[Problem]:
    disks = facts.cache.disks
    if disks and facts.instance_store and not any(disk.is_instance_store for disk in disks):
        yield _problem(facts, "device", f"lies on {models(disks)}, beside {models(facts.instance_store)}")


def _landed_on_root(facts: NodeFacts) -> Iterator[Problem]:
    mount = facts.cache.mount
    if mount is None or any(disk.is_instance_store for disk in facts.cache.disks):
        return
    # In a pod the mount table shows the path of a hostPath volume on the file system that it landed on.
    for path, what in ((mount.root, "the volume"), (facts.cache.path, "it")):
        point = next((each for each in _NVME_POINTS if path == each or path.startswith(f"{each}/")), "")
        if point and not (what == "it" and mount.point.startswith(point)):
            yield _problem(facts, "mount", f"{what} is {path} on {mount.source} ({mount.fs}): no disk is mounted at {point}")
            return


def _unused_nvme(facts: NodeFacts) -> Iterator[Problem]:
    unused = tuple(disk for disk in facts.instance_store if not disk.in_use)
    if unused:
        total = format_bytes(sum(disk.size_bytes for disk in unused))
        yield Problem("disks", "", f"{models(unused)}, {total}: neither mounted nor part of an array", "/sys/block")


def _on_network(facts: NodeFacts) -> Iterator[Problem]:
    mount = facts.cache.mount
    if mount is not None and mount.fs in _NETWORK:
        yield _problem(facts, "mount", f"lies on {mount.fs} ({mount.source}), which other machines may mount as well")


def _in_memory(facts: NodeFacts) -> Iterator[Problem]:
    mount = facts.cache.mount
    if mount is not None and mount.fs in _MEMORY:
        yield _problem(facts, "mount", f"lies on {mount.fs} at {mount.point}: what is in it counts as memory")


def _in_container_layer(facts: NodeFacts) -> Iterator[Problem]:
    mount = facts.cache.mount
    if mount is not None and mount.fs == "overlay" and mount.point == "/" and facts.place("store") is None:
        yield _problem(facts, "mount", "lies in the container's own layer, and no store was named")


def _little_room(facts: NodeFacts) -> Iterator[Problem]:
    cache = facts.cache
    if cache.size_bytes and cache.free_bytes < _ROOM_BYTES:
        yield _problem(facts, "free", f"{format_bytes(cache.free_bytes)} of {format_bytes(cache.size_bytes)} are free")
    elif cache.inodes and cache.free_inodes < _ROOM_INODES:
        yield _problem(facts, "free", f"{count(cache.free_inodes, 'inode')} of {cache.inodes} left")


def _near_eviction(facts: NodeFacts) -> Iterator[Problem]:
    cache = facts.cache
    if not facts.kubernetes or not cache.disks or cache.size_bytes < _LEAST_JUDGED_BYTES:
        return
    if cache.free_bytes < _EVICTED_BYTES * cache.size_bytes:
        yield _problem(facts, "free", f"{100 * cache.free_bytes // cache.size_bytes} % of its disk is free")
    elif cache.inodes and cache.free_inodes < _EVICTED_INODES * cache.inodes:
        yield _problem(facts, "free", f"{100 * cache.free_inodes // cache.inodes} % of its disk's inodes are free")


def _hollow(facts: NodeFacts) -> Iterator[Problem]:
    if facts.cache.hollow:
        yield _problem(facts, "content", "holds folders and not one file: an engine was here and compiled nothing")


RULES: tuple[Rule[NodeFacts], ...] = (
    Rule(
        "GP900",
        "Cache folder that can't be written",
        "error",
        "A file was tried there as the user that runs this. Nothing can be restored into it and nothing compiled is kept: every"
        " start is cold, and an engine that is told to use it may end.",
        "Mount a volume that this user can write (securityContext.fsGroup for an emptyDir or a claim; for a hostPath an init"
        " container that changes the owner), or name another folder with --cache-dir.",
        ("https://kubernetes.io/docs/tasks/configure-pod-container/security-context/",),
        _cant_write,
    ),
    Rule(
        "GP901",
        "Cache folder from which no code can be loaded",
        "error",
        "Inductor, Triton and FlashInfer load shared objects from their caches. On a file system that is mounted noexec that fails"
        " with 'failed to map segment from shared object', and the engine ends. A page of a file was mapped as code to find out.",
        "Mount it without noexec, or use another folder.",
        ("https://github.com/pytorch/pytorch/issues/91005", "https://github.com/pytorch/pytorch/issues/123054"),
        _cant_map,
    ),
    Rule(
        "GP902",
        "Cache folder beside the instance store",
        "warning",
        "The machine has NVMe disks of its own, and the folder is on another one: the root volume gives about 1 GB/s, the instance"
        " store up to 30. Judged by the mount table and the disks' models, whatever the path or the node class says.",
        "Put it on the mounted instance store: an emptyDir where the node class has instanceStorePolicy: RAID0, or the path where"
        " the array is mounted.",
        ("A40", "A44", "X14"),
        _not_on_nvme,
    ),
    Rule(
        "GP903",
        "NVMe path on the root volume",
        "warning",
        "hostPath with DirectoryOrCreate makes a plain folder where no disk is mounted, without an error. The mount table shows on"
        " which file system it landed.",
        "Use the path that goes with the node class (/mnt/k8s-disks/0 for Karpenter's AL2023, /mnt/.ephemeral for Auto Mode), have"
        " the disks formatted, and write type: Directory.",
        ("A41", "A42", "A43", "A46"),
        _landed_on_root,
    ),
    Rule(
        "GP904",
        "Instance store that nobody uses",
        "info",
        "The disks are there and paid for. Karpenter and Auto Mode leave them alone unless the node class asks for them.",
        "Set instanceStorePolicy: RAID0 in the EC2NodeClass; in Auto Mode see GP208.",
        ("A44", "A45", "X14", "https://github.com/awslabs/amazon-eks-ami/pull/1171"),
        _unused_nvme,
    ),
    Rule(
        "GP905",
        "Cache folder without rename or locks",
        "error",
        "A restore is renamed into place, and a live folder is locked. Mountpoint for Amazon S3 can do neither, so every start is"
        " cold; engines' own caches fail there as well.",
        "Use a folder of the node's own disk. A bucket belongs behind --store.",
        ("X19",),
        _cant_rename,
    ),
    Rule(
        "GP906",
        "Cache folder on a network file system",
        "warning",
        "Engines on several machines that write one compile cache break each other's files, and stale handles end starts. Live"
        " caches belong on the node; sharing is copying in and out.",
        "Use a folder of the node's own disk, and share through --store.",
        ("X10", "https://github.com/pytorch/pytorch/issues/173679"),
        _on_network,
    ),
    Rule(
        "GP907",
        "Cache folder in memory",
        "info",
        "What is written there counts as the container's memory, and is gone with the pod.",
        "Use an emptyDir without medium: Memory, or count the cache in the memory limit.",
        ("https://kubernetes.io/docs/concepts/storage/volumes/#emptydir",),
        _in_memory,
    ),
    Rule(
        "GP908",
        "Cache in the container's own layer",
        "info",
        "It is gone when the container is, even after a restart of the same pod, and without a store nothing brings it back.",
        "Mount a volume there, or name a store with --store.",
        ("P09", "A30"),
        _in_container_layer,
    ),
    Rule(
        "GP909",
        "Little room for the cache",
        "warning",
        "A live cache of a large model takes up to 2 GiB and some thousand files, staging included. A restore that does not fit is"
        " given up, and the start goes on cold.",
        "Free some space, or use a larger disk: glowplug plan tells how large.",
        ("P24",),
        _little_room,
    ),
    Rule(
        "GP910",
        "Disk near the kubelet's eviction threshold",
        "warning",
        "Below 10 % of free space, or 5 % of free inodes, on the node's disk the kubelet evicts pods; before that it removes"
        " images.",
        "Use a larger disk, or remove images and old caches (glowplug cache gc --node).",
        ("P24", "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/"),
        _near_eviction,
    ),
    Rule(
        "GP911",
        "Cache folder without a file",
        "info",
        "With --enforce-eager vLLM makes its cache's folders and writes nothing into them, so a volume for it gains nothing. An"
        " engine that is still starting looks the same.",
        "Take --enforce-eager away if a compile cache is wanted, then look again after a start.",
        ("A24",),
        _hollow,
    ),
)
