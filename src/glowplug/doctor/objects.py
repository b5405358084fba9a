"""Kubernetes objects as they were given: which kind, which name, where in which file, and the paths of their fields.

An object is its plain values (``documents.Map``) and no model of its kind: what a rule does not ask for does not matter, and what
is missing, or of another type than the kind has, reads as absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from glowplug.doctor.base import Problem
from glowplug.doctor.documents import Map, Seq

Path: TypeAlias = "tuple[str | int, ...]"
_EMPTY = Map(0)
_NOTHING: Seq = Seq(0)

_CORE = ("Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolume", "PersistentVolumeClaim", "Pod", "Namespace")
KINDS: dict[tuple[str, str], str] = {
    **{("", kind): kind for kind in _CORE},
    **{("apps", kind): kind for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")},
    **{("extensions", kind): kind for kind in ("Deployment", "DaemonSet", "Ingress")},
    ("argoproj.io", "Rollout"): "Rollout",
    ("autoscaling", "HorizontalPodAutoscaler"): "HorizontalPodAutoscaler",
    ("batch", "CronJob"): "CronJob",
    ("batch", "Job"): "Job",
    ("eks.amazonaws.com", "NodeClass"): "NodeClass",
    ("eksctl.io", "ClusterConfig"): "ClusterConfig",
    ("karpenter.k8s.aws", "AWSNodeTemplate"): "AWSNodeTemplate",
    ("karpenter.k8s.aws", "EC2NodeClass"): "EC2NodeClass",
    ("karpenter.sh", "NodePool"): "NodePool",
    ("karpenter.sh", "Provisioner"): "Provisioner",
    ("keda.sh", "ScaledObject"): "ScaledObject",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "LeaderWorkerSet",
    ("monitoring.coreos.com", "PodMonitor"): "PodMonitor",
    ("monitoring.coreos.com", "PrometheusRule"): "PrometheusRule",
    ("monitoring.coreos.com", "ServiceMonitor"): "ServiceMonitor",
    ("networking.k8s.io", "Ingress"): "Ingress",
    ("policy", "PodDisruptionBudget"): "PodDisruptionBudget",
    ("ray.io", "RayCluster"): "RayCluster",
    ("ray.io", "RayService"): "RayService",
    ("serving.kserve.io", "ClusterServingRuntime"): "ClusterServingRuntime",
    ("serving.kserve.io", "InferenceService"): "InferenceService",
    ("serving.kserve.io", "LLMInferenceService"): "LLMInferenceService",
    ("serving.kserve.io", "ServingRuntime"): "ServingRuntime",
    ("storage.k8s.io", "StorageClass"): "StorageClass",
}
"""API group and kind of what the rules know. The group counts: Knative and Kubernetes both have a Service."""

_CLUSTER_WIDE = frozenset(
    """
    AWSNodeTemplate ClusterConfig ClusterServingRuntime EC2NodeClass Namespace NodeClass NodePool PersistentVolume Provisioner
    StorageClass
    """.split()  # noqa: SIM905
)


def tree(value: object, *path: str | int) -> Map:
    """The mapping at a path; an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Map) else _EMPTY


def items(value: object, *path: str | int) -> Seq:
    """The sequence at a path; an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Seq) else _NOTHING


def text(value: object, *path: str | int) -> str:
    """The scalar at a path as text; empty where there is none."""
    found = at(value, *path)
    if found is None or isinstance(found, (Map, Seq)):
        return ""
    return str(found).lower() if isinstance(found, bool) else str(found)


def number(value: object, *path: str | int, default: int = 0) -> int:
    """The integer at a path; the default where there is none."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def at(value: object, *path: str | int) -> Any:
    """What stands at a path; None where it leads nowhere."""
    for step in path:
        if isinstance(value, Map) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, Seq) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def line_of(value: Map | Seq, path: Path) -> int:
    """The line of the deepest part of a path that is there."""
    line = value.line
    for step in path:
        if at(value, step) is None and not (isinstance(value, Map) and step in value):
            break
        line, value = value.lines[step], value[step]  # type: ignore[index]
    return line


def spelt(path: Path) -> str:
    """A path as a person writes it: ``spec.containers[0].env``; keys with dots in brackets."""
    told = ""
    for step in path:
        if isinstance(step, int):
            told += f"[{step}]"
        elif "." in step or "/" in step:
            told += f'["{step}"]'
        else:
            told += f".{step}" if told else step
    return told


@dataclass(frozen=True, eq=False)
class Object:
    """One object of a file.

    Attributes:
        body: its values.
        file: where it stands, as the user named it.
        kind: as in ``KINDS``; empty for one that the rules don't know.
        name: may be empty.
        namespace: ``default`` where none is given; empty where the kind has none.
    """

    body: Map
    file: str
    kind: str
    name: str
    namespace: str

    @property
    def label(self) -> str:
        """``Deployment/default/llm``; without a namespace where the kind has none."""
        return "/".join(part for part in (text(self.body, "kind"), self.namespace, self.name) if part)

    @property
    def line(self) -> int:
        """Of its first line."""
        return self.body.line

    def problem(self, path: Path, message: str) -> Problem:
        """Something wrong at a path of this object."""
        return Problem(self.label, spelt(path), message, self.file, line_of(self.body, path))


def object_of(body: Map, file: str) -> Object:
    """What a mapping with ``apiVersion`` and ``kind`` describes."""
    group = text(body, "apiVersion").rpartition("/")[0]
    kind = KINDS.get((group, text(body, "kind")), "")
    name = text(body, "metadata", "name") or text(body, "metadata", "generateName")
    if kind == "ClusterConfig":
        return Object(body, file, kind, name, "")
    namespace = "" if kind in _CLUSTER_WIDE else text(body, "metadata", "namespace") or "default"
    return Object(body, file, kind, name, namespace)
