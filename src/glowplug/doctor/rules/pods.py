"""What the API server refuses, or the kubelet silently does otherwise, in pods that hold an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, text, tree
from glowplug.doctor.pods import CHIPS, CORES, GPUS
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests

_DEVICES = (*GPUS, *CHIPS, CORES)


def _device_amounts(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.containers:
        for name in _DEVICES:
            limit, request = (text(container.body, "resources", part, name) for part in ("limits", "requests"))
            if not limit and not request:
                continue
            amount = quantity(limit or request)
            if amount is None or amount != int(amount):
                yield container.problem(("resources",), f"{name}: {limit or request} is no whole number of devices")
            elif request and not limit:
                yield container.problem(("resources", "requests", name), f"{name} is in requests and not in limits")
            elif request and quantity(request) != amount:
                yield container.problem(("resources", "requests", name), f"{name}: requests {request} and limits {limit} differ")


def _no_memory(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        if container.resource("memory") is None and container.resource("memory", "requests") is None and container.accelerated:
            yield container.problem(("resources",), "asks for an accelerator and for no memory")


def _variable_twice(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        seen = set()
        for index, entry in enumerate(items(container.body, "env")):
            name = text(entry, "name")
            if name in seen:
                yield container.problem(("env", index), f"{name} is set twice, and the last one counts")
            seen.add(name)


def _unknown_volume(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        if pod.kind in ("InferenceService", "ServingRuntime", "ClusterServingRuntime", "LLMInferenceService"):
            continue  # the controller adds volumes of its own
        claims = {text(claim, "metadata", "name") for claim in items(pod.object.body, "spec", "volumeClaimTemplates")}
        for container in (*pod.inits, *pod.containers):
            for mount in container.mounts:
                if mount.volume and mount.volume not in pod.volumes and mount.volume not in claims:
                    yield container.problem(("volumeMounts", mount.place), f"mounts {mount.volume}, which the pod has no volume of")


def _privileged(manifests: Manifests) -> Iterator[Problem]:
    engines = {engine.container for engine in manifests.engines}
    for container in manifests.serving:
        if container in engines and at(container.body, "securityContext", "privileged") is True:
            yield container.problem(("securityContext", "privileged"), "the engine is privileged, which no device plugin needs")


def _read_only_root(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        read_only = at(container.body, "securityContext", "readOnlyRootFilesystem") is True
        if read_only and container.mount_of("/tmp") is None:  # noqa: S108  the engine's, not ours
            path = ("securityContext", "readOnlyRootFilesystem")
            yield container.problem(path, "the root file system is read-only, and nothing is mounted at /tmp")


def _host_ipc(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        if at(pod.spec, "hostIPC") is True:
            yield pod.problem(("hostIPC",), "shares the node's memory segments, for /dev/shm")


def _removed_api(manifests: Manifests) -> Iterator[Problem]:
    for each in manifests.objects:
        version = text(each.body, "apiVersion")
        successor = _SUCCESSORS.get((version, each.kind))
        if successor:
            yield each.problem(("apiVersion",), f"{version} {each.kind} is served no more; write {successor}")


_SUCCESSORS = {
    ("autoscaling/v2beta1", "HorizontalPodAutoscaler"): "autoscaling/v2",
    ("autoscaling/v2beta2", "HorizontalPodAutoscaler"): "autoscaling/v2",
    ("batch/v1beta1", "CronJob"): "batch/v1",
    ("extensions/v1beta1", "Deployment"): "apps/v1",
    ("extensions/v1beta1", "DaemonSet"): "apps/v1",
    ("extensions/v1beta1", "Ingress"): "networking.k8s.io/v1",
    ("networking.k8s.io/v1beta1", "Ingress"): "networking.k8s.io/v1",
    ("policy/v1beta1", "PodDisruptionBudget"): "policy/v1",
    ("karpenter.sh/v1beta1", "NodePool"): "karpenter.sh/v1",
    ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"): "karpenter.k8s.aws/v1",
    ("karpenter.sh/v1alpha5", "Provisioner"): "a NodePool of karpenter.sh/v1",
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"): "an EC2NodeClass of karpenter.k8s.aws/v1",
}


def _hides_devices(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        value = container.env.get("NVIDIA_VISIBLE_DEVICES")
        if value == "all" and container.gpus and "nvidia.com/gpu" in tree(container.body, "resources", "limits"):
            path = container.env_path("NVIDIA_VISIBLE_DEVICES")[len(container.path) :]
            yield container.problem(path, "NVIDIA_VISIBLE_DEVICES=all beside nvidia.com/gpu: it may see GPUs of other pods")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP050",
        "Accelerators asked for in a way that is refused",
        "error",
        "Devices can't be shared out in parts or promised beyond what there is: the API server wants whole numbers, in limits,"
        " and the same in requests if they are there.",
        "Write the number of devices in resources.limits alone.",
        ("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
        _device_amounts,
    ),
    Rule(
        "GP051",
        "Accelerator without memory",
        "warning",
        "Weights pass through host memory while they load. A pod that asks for none may be put where there is none, and is the"
        " first to be killed.",
        "Request what glowplug plan computes: buffer, engine and /dev/shm.",
        ("A64", "X04"),
        _no_memory,
    ),
    Rule(
        "GP052",
        "Variable set twice",
        "warning",
        "The last one counts, and tools that merge manifests by name drop either.",
        "Keep one.",
        ("https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/",),
        _variable_twice,
    ),
    Rule(
        "GP053",
        "Mount of a volume that the pod does not have",
        "error",
        "The API server refuses the pod.",
        "Add the volume, or correct the name.",
        ("A30",),
        _unknown_volume,
    ),
    Rule(
        "GP054",
        "Privileged engine",
        "warning",
        "The device plugin gives the container its devices. Privileged, it sees all of the node's, also those of other pods.",
        "Remove privileged.",
        ("https://kubernetes.io/docs/concepts/security/pod-security-standards/",),
        _privileged,
    ),
    Rule(
        "GP055",
        "Read-only root file system without /tmp",
        "warning",
        "vLLM, Triton and Inductor write below /tmp while they start; the engine ends, or compiles each time.",
        "Mount an emptyDir at /tmp.",
        ("https://kubernetes.io/docs/tasks/configure-pod-container/security-context/",),
        _read_only_root,
    ),
    Rule(
        "GP056",
        "hostIPC in place of a memory volume",
        "info",
        "hostIPC gives the node's /dev/shm, and every memory segment of the node with it.",
        "Mount an emptyDir with medium: Memory at /dev/shm.",
        ("P10",),
        _host_ipc,
    ),
    Rule(
        "GP057",
        "API version that is served no more",
        "error",
        "Kubernetes 1.29 and later, or a current Karpenter, refuse it.",
        "Write the version that is named; field names may differ.",
        ("https://kubernetes.io/docs/reference/using-api/deprecation-guide/",),
        _removed_api,
    ),
    Rule(
        "GP058",
        "All GPUs made visible",
        "warning",
        "The variable overrides what the device plugin has assigned, where the runtime honours it: two pods then use one GPU.",
        "Remove NVIDIA_VISIBLE_DEVICES.",
        ("https://github.com/NVIDIA/k8s-device-plugin",),
        _hides_devices,
    ),
)
