"""Claims, volumes and classes: what can't be provisioned, can't be attached twice, or reads weights over a slow file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.documents import Seq
from glowplug.doctor.objects import items, text, tree
from glowplug.doctor.quantities import quantity
from glowplug.doctor.rules.cache_volumes import S3_DRIVER, claim_of, drivers, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests

_SLOW = {"efs.csi.aws.com": "EFS", "nfs": "NFS", "nfs.csi.k8s.io": "NFS"}
_SMALL_BYTES = 10 * 2**30


def _static_only(manifests: Manifests) -> Iterator[Problem]:
    for storage in manifests.of("StorageClass"):
        if text(storage.body, "provisioner") == S3_DRIVER:
            yield storage.problem(("provisioner",), f"{S3_DRIVER} provisions nothing: claims of this class stay Pending")


def _other_class(manifests: Manifests) -> Iterator[Problem]:
    for claim in manifests.of("PersistentVolumeClaim"):
        volume = manifests.find("PersistentVolume", text(claim.body, "spec", "volumeName"))
        if volume is None:
            continue
        wanted, offered = (text(each.body, "spec", "storageClassName") for each in (claim, volume))
        if "storageClassName" not in tree(claim.body, "spec"):
            if S3_DRIVER in text(volume.body, "spec", "csi", "driver"):
                yield claim.problem(("spec",), 'no storageClassName: "": a default class of the cluster takes the claim')
        elif wanted != offered:
            yield claim.problem(("spec", "storageClassName"), f"is {wanted!r}, and {volume.label} has {offered!r}: they never bind")


def _one_node(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        for volume, index in pod.volumes.values():
            claim = claim_of(manifests, pod, volume)
            modes = items(claim.body, "spec", "accessModes") if claim is not None else Seq(0)
            single = bool(modes) and set(map(str, modes)) <= {"ReadWriteOnce", "ReadWriteOncePod"}
            if claim is not None and single and several(manifests, pod) and pod.kind == "Deployment":
                yield pod.problem(("volumes", index), f"several pods use {claim.label}, which one node can mount ({modes[0]})")


def _slow_weights(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        pod = engine.container.pod
        mount = engine.container.mount_of(engine.model) if engine.model.startswith("/") else None
        if mount is None or mount.volume not in pod.volumes:
            continue
        volume, index = pod.volumes[mount.volume]
        slow = [name for driver, name in _SLOW.items() if driver in drivers(manifests, pod, volume)]
        if slow:
            yield pod.problem(("volumes", index), f"the weights ({engine.model[:60]}) are read from {slow[0]}")


def _small_disk(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        for part in ("limits", "requests"):
            size = container.resource("ephemeral-storage", part)
            if size is not None and size < _SMALL_BYTES and part == "limits" and container.accelerated:
                path = ("resources", part, "ephemeral-storage")
                yield container.problem(path, f"may write {size / 2**30:.1f} GiB in all: logs, caches, downloads and emptyDirs")


def _claim_without_size(manifests: Manifests) -> Iterator[Problem]:
    for claim in manifests.of("PersistentVolumeClaim"):
        written = text(claim.body, "spec", "resources", "requests", "storage")
        if not written or quantity(written) is None:
            yield claim.problem(("spec", "resources"), f"requests {written or 'no size'}, which is no quantity of storage")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP214",
        "Storage class of Mountpoint for Amazon S3",
        "error",
        "The driver has static provisioning only: a bucket is named in a PersistentVolume. A class provisions nothing. The"
        " capacity that a volume states is not enforced.",
        'Write a PersistentVolume with the bucket, and a claim with storageClassName: "" and volumeName.',
        ("B17",),
        _static_only,
    ),
    Rule(
        "GP215",
        "Claim and volume of different classes",
        "error",
        "A claim binds to a volume of the same class only. A claim that names none is given the cluster's default class.",
        'Write storageClassName: "" in both, or the same class.',
        ("B17", "B18"),
        _other_class,
    ),
    Rule(
        "GP216",
        "One volume for several nodes",
        "warning",
        "A ReadWriteOnce volume is attached to one node: pods on another stay in ContainerCreating.",
        "Use a StatefulSet with a claim each, a shared file system for weights, or stream the weights.",
        ("B20", "https://github.com/vllm-project/production-stack"),
        _one_node,
    ),
    Rule(
        "GP219",
        "Weights on a network file system",
        "warning",
        "Elastic EFS gave 894 GiB in 43 minutes. Every new pod reads all of it.",
        "Stream the weights from S3, or copy them to the node's NVMe.",
        ("P16",),
        _slow_weights,
    ),
    Rule(
        "GP220",
        "Little local storage",
        "warning",
        "Compile caches, temporary files and logs count against ephemeral-storage; the pod is evicted in the middle of its start.",
        "Leave the limit out, or raise it to what glowplug plan computes.",
        ("P24", "B14"),
        _small_disk,
    ),
    Rule(
        "GP221",
        "Claim without a size",
        "error",
        "The API server refuses it.",
        "Write spec.resources.requests.storage: 100Gi.",
        ("B17",),
        _claim_without_size,
    ),
)
