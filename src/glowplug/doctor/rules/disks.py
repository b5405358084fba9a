# ruff: noqa: S108  /dev/shm is a container's here, and in prose
"""``/dev/shm``: the ranks of one engine talk through it, and a container's default is 64 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, text, tree
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.documents import Map
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import Container

_SHM = "/dev/shm"
_KSERVE_ADDS = ("LLMInferenceService",)


def _empty_dir_at_shm(container: Container) -> tuple[Map, int] | None:
    """The emptyDir that is mounted at /dev/shm, and its place among the volumes."""
    mount = container.mount_of(_SHM)
    if mount is None or mount.path != _SHM or mount.volume not in container.pod.volumes:
        return None
    volume, index = container.pod.volumes[mount.volume]
    return (tree(volume, "emptyDir"), index) if "emptyDir" in volume else None


def _none(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        ranks = engine.tp * (engine.arguments.number("pipeline-parallel-size") or 1)
        given = container.mount_of(_SHM) is not None or at(container.pod.spec, "hostIPC") is True
        if ranks > 1 and not given and container.pod.kind not in _KSERVE_ADDS:
            yield container.problem(("volumeMounts",), f"{ranks} ranks, and /dev/shm has the default 64 MB")


def _on_disk(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        found = _empty_dir_at_shm(container)
        if found is not None and text(found[0], "medium") != "Memory":
            yield container.pod.problem(("volumes", found[1]), "the emptyDir at /dev/shm is on the disk: medium is not Memory")


def _over_limit(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        found, limit = _empty_dir_at_shm(container), container.resource("memory")
        size = quantity(text(found[0], "sizeLimit")) if found is not None else None
        if found is not None and size is not None and limit is not None and size >= limit:
            what = f"/dev/shm may grow to {text(found[0], 'sizeLimit')}, and the container's memory limit is not above that"
            yield container.pod.problem(("volumes", found[1], "emptyDir", "sizeLimit"), what)


def _no_size(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        found = _empty_dir_at_shm(container)
        if found is None or text(found[0], "medium") != "Memory" or text(found[0], "sizeLimit"):
            continue
        if container.resource("memory") is None:
            yield container.pod.problem(
                ("volumes", found[1]), "the memory volume at /dev/shm has no sizeLimit, and the pod no memory limit"
            )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP201",
        "Several ranks with 64 MB of /dev/shm",
        "error",
        "NCCL and vLLM's ranks share buffers in /dev/shm. With the default of 64 MB the start ends in an NCCL error, or hangs.",
        "Mount an emptyDir with medium: Memory and a sizeLimit at /dev/shm.",
        ("P10", "P22", "A64"),
        _none,
    ),
    Rule(
        "GP202",
        "/dev/shm on a disk",
        "warning",
        "An emptyDir without medium: Memory is a folder on the node's disk: every message between ranks is written to it.",
        "Add medium: Memory.",
        ("P10",),
        _on_disk,
    ),
    Rule(
        "GP203",
        "/dev/shm as large as the memory limit",
        "warning",
        "What lies in a memory volume counts as the container's memory: it is killed before /dev/shm is full.",
        "Add the size of /dev/shm to the memory limit.",
        ("P10", "https://kubernetes.io/docs/concepts/storage/volumes/#emptydir"),
        _over_limit,
    ),
    Rule(
        "GP204",
        "/dev/shm without a bound",
        "info",
        "Without sizeLimit and memory limit a memory volume may take half of the node's memory.",
        "Set sizeLimit to what glowplug plan computes.",
        ("https://kubernetes.io/docs/concepts/storage/volumes/#emptydir",),
        _no_size,
    ),
)
