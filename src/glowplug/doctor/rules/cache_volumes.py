"""The volume that a compile cache lies on: one that is gone with the pod, one that is shared, one that can't rename."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, number, text, tree
from glowplug.doctor.serving import DEFAULT_CACHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.documents import Map
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object
    from glowplug.doctor.pods import Mount, PodTemplate
    from glowplug.doctor.serving import Engine

S3_DRIVER = "s3.csi.aws.com"
_SHARED_DRIVERS = ("efs.csi.aws.com", "fsx.csi.aws.com", "nfs.csi.k8s.io", "file.csi.azure.com", "filestore.csi.storage.gke.io")


class Kept(NamedTuple):
    """One cache of one engine, and the volume under it."""

    engine: Engine
    what: str
    mount: Mount
    volume: Map
    place: int


def kept(manifests: Manifests) -> Iterator[Kept]:
    """Every volume that compiled code is written to."""
    for engine in manifests.engines:
        pod = engine.container.pod
        places = {f"{name}={path}": path for name, path in engine.caches.items()} | {path: path for path in DEFAULT_CACHES}
        seen = set()
        for what, path in places.items():
            mount = engine.container.mount_of(path)
            if mount is not None and mount.path != "/" and mount.volume in pod.volumes and mount.place not in seen:
                seen.add(mount.place)
                yield Kept(engine, what, mount, *pod.volumes[mount.volume])


def drivers(manifests: Manifests, pod: PodTemplate, volume: Map) -> set[str]:
    """CSI drivers (or ``nfs``) that a volume is known to come from."""
    if "nfs" in volume:
        return {"nfs"}
    inline = text(volume, "csi", "driver")
    claim = claim_of(manifests, pod, volume)
    if claim is None:
        return {inline} - {""}
    found = {inline, text(manifests_class(manifests, claim), "provisioner")}
    bound = manifests.find("PersistentVolume", text(claim.body, "spec", "volumeName"))
    if bound is not None:
        found |= {text(bound.body, "spec", "csi", "driver"), "nfs" if "nfs" in tree(bound.body, "spec") else ""}
    return found - {""}


def claim_of(manifests: Manifests, pod: PodTemplate, volume: Map) -> Object | None:
    """The claim behind a volume; None if it has none, or it was not given."""
    name = text(volume, "persistentVolumeClaim", "claimName")
    return manifests.find("PersistentVolumeClaim", name, pod.object.namespace) if name else None


def manifests_class(manifests: Manifests, claim: Object) -> Map | None:
    """The storage class of a claim; None if it was not given."""
    found = manifests.find("StorageClass", text(claim.body, "spec", "storageClassName"))
    return found.body if found is not None else None


def several(manifests: Manifests, pod: PodTemplate) -> bool:
    """Whether several pods of a template may run at once."""
    most = [pod.replicas]
    for scaler in manifests.of("HorizontalPodAutoscaler", "ScaledObject"):
        if manifests.target(scaler) is pod.object:
            field = "maxReplicas" if scaler.kind == "HorizontalPodAutoscaler" else "maxReplicaCount"
            most.append(number(scaler.body, "spec", field, default=100))
    return max(most) > 1


def _gone_with_pod(manifests: Manifests) -> Iterator[Problem]:
    for each in kept(manifests):
        if "emptyDir" in each.volume and each.engine.glowplug is None and not each.engine.eager:
            yield each.engine.container.pod.problem(
                ("volumes", each.place), f"the compile cache ({each.what}) is on an emptyDir, which every new pod finds empty"
            )


def _shared(manifests: Manifests) -> Iterator[Problem]:
    for each in kept(manifests):
        pod = each.engine.container.pod
        if each.mount.per_pod or each.mount.read_only:
            continue
        found = drivers(manifests, pod, each.volume)
        claim = claim_of(manifests, pod, each.volume)
        many = claim is not None and "ReadWriteMany" in items(claim.body, "spec", "accessModes")
        if S3_DRIVER not in found and (many or found & {"nfs", *_SHARED_DRIVERS}) and several(manifests, pod):
            yield pod.problem(("volumes", each.place), f"several pods write one compile cache ({each.what}) on a shared volume")


def _on_bucket(manifests: Manifests) -> Iterator[Problem]:
    for each in kept(manifests):
        pod = each.engine.container.pod
        if S3_DRIVER in drivers(manifests, pod, each.volume):
            yield pod.problem(("volumes", each.place), f"a cache ({each.what}) on Mountpoint for S3, which can't rename or append")


def _hub_on_bucket(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        for container in (*pod.inits, *pod.containers):
            for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
                mount = container.mount_of(container.env.get(name) or "-")
                if mount is None or mount.volume not in pod.volumes or mount.read_only:
                    continue
                volume, index = pod.volumes[mount.volume]
                if S3_DRIVER in drivers(manifests, pod, volume):
                    yield pod.problem(
                        ("volumes", index), f"{name} on Mountpoint for S3, which has no symbolic links and no renaming"
                    )


def _read_only(manifests: Manifests) -> Iterator[Problem]:
    for each in kept(manifests):
        if each.mount.read_only and each.engine.glowplug is None:
            container = each.engine.container
            yield container.problem(("volumeMounts", each.mount.place), f"the compile cache ({each.what}) is mounted read-only")


def _not_writable(manifests: Manifests) -> Iterator[Problem]:
    for each in kept(manifests):
        container = each.engine.container
        pod = container.pod
        user = at(container.body, "securityContext", "runAsUser")
        user = at(pod.spec, "securityContext", "runAsUser") if user is None else user
        prepared = any(mount.volume == each.mount.volume for init in pod.inits for mount in init.mounts)
        if "hostPath" in each.volume and isinstance(user, int) and user > 0 and not prepared and not each.mount.read_only:
            yield pod.problem(
                ("volumes", each.place), f"user {user} writes to a hostPath ({each.what}), which the kubelet makes for root"
            )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP209",
        "Compile cache on an emptyDir",
        "warning",
        "An emptyDir outlives a container and not its pod: each new pod, each node and each roll-out compiles again.",
        "Start the engine by glowplug run with a store, which fills the emptyDir at each start; or use the node's NVMe.",
        ("P08", "P09", "A48"),
        _gone_with_pod,
    ),
    Rule(
        "GP210",
        "Compile cache shared by several pods",
        "warning",
        "Concurrent writers have corrupted shared caches (Inductor writes atomically since PyTorch 2.10, and not all caches are"
        " Inductor's); absolute paths and modification times don't survive a network file system.",
        "Give each pod a folder of its own (subPathExpr, or a node-local volume), and share by copies, as glowplug run does.",
        ("X10", "A52"),
        _shared,
    ),
    Rule(
        "GP211",
        "Cache on Mountpoint for Amazon S3",
        "error",
        "Caches write a temporary file and rename it. Mountpoint knows no renaming, no symbolic links and no writing but from the"
        " start: the cache can't be written, or is left half-written and is trusted later.",
        "Keep the live cache on a node-local volume, and share it through glowplug run --store s3://...",
        ("X19", "B15", "B16", "B17"),
        _on_bucket,
    ),
    Rule(
        "GP212",
        "Hugging Face's cache on Mountpoint for Amazon S3",
        "error",
        "The hub's cache is made of symbolic links and renamed files. Mountpoint has neither.",
        "Download to a local volume, or copy the model's plain files to the bucket and serve it by its s3:// address.",
        ("X19", "B17"),
        _hub_on_bucket,
    ),
    Rule(
        "GP213",
        "Compile cache mounted read-only",
        "warning",
        "The engine writes into its cache while it starts. What it can't write it compiles each time, or it ends.",
        "Mount it writable; give each pod a copy of its own.",
        ("A30",),
        _read_only,
    ),
    Rule(
        "GP218",
        "hostPath cache that the engine's user can't write",
        "warning",
        "The kubelet makes a hostPath's folder for root with mode 0755, and fsGroup does not apply to it. The engine starts, and"
        " its cache stays empty.",
        "Let an init container run chown on the folder.",
        ("A41", "https://github.com/kserve/kserve/issues/4151"),
        _not_writable,
    ),
)
