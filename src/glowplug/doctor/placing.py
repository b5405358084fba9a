"""Which nodes a pod may land on, as far as the given files tell: node pools, and instance types of the catalogue.

Where a file leaves it open (no node pool given, a type that the catalogue doesn't have) the answer is empty, and rules stay silent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from glowplug.doctor.objects import items, text, tree
from glowplug.plan.catalogue import instances

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glowplug.doctor.documents import Map
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object
    from glowplug.doctor.pods import PodTemplate
    from glowplug.plan.catalogue import Instance

POOL = "karpenter.sh/nodepool"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_REMEMBERED = 4096
AUTO_GROUP, SELF_MANAGED_GROUP = "eks.amazonaws.com", "karpenter.k8s.aws"
_FAMILIES = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")


def required(pod: PodTemplate) -> dict[str, tuple[str, ...]]:
    """Label to the values that a node may have for it, by node selector and required affinity with one term."""
    wanted: dict[str, tuple[str, ...]] = {name: (text(value),) for name, value in tree(pod.spec, "nodeSelector").items()}
    terms = items(pod.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for expression in items(terms[0], "matchExpressions") if len(terms) == 1 else ():
        if text(expression, "operator") in ("In", "Exists"):
            wanted[text(expression, "key")] = tuple(text(value) for value in items(expression, "values"))
    return wanted


@lru_cache(maxsize=_REMEMBERED)
def pools(manifests: Manifests, pod: PodTemplate) -> tuple[Object, ...]:
    """Node pools that the pod chooses; where it chooses none, those that have its kind of device and let it in."""
    given = manifests.of("NodePool")
    wanted = required(pod)
    if POOL in wanted:
        return tuple(pool for pool in given if pool.name in wanted[POOL])
    labels = {name: values for name, values in wanted.items() if not _well_known(name)}
    if labels:
        return tuple(pool for pool in given if all(offers(pool, name, values) for name, values in labels.items()))
    return tuple(pool for pool in given if _has_devices_of(pool, pod) and not any(untolerated(pool, pod)))


def _has_devices_of(pool: Object, pod: PodTemplate) -> bool:
    """Whether a pool's known types have the kind of accelerator that a pod asks for; true where nothing is known."""
    kinds = {each.accelerator.kind for each in types_of(pool)}
    wanted = {"gpu" if each.gpus else "neuron" for each in pod.containers if each.accelerated}
    return not kinds or not wanted or bool(kinds & wanted)


def _well_known(label: str) -> bool:
    return any(part in label for part in ("kubernetes.io/", "karpenter.sh/", "karpenter.k8s.aws/", "eks.amazonaws.com/"))


def offers(pool: Object, name: str, values: tuple[str, ...]) -> bool:
    """Whether a node pool promises a label with one of these values."""
    labels = tree(pool.body, "spec", "template", "metadata", "labels")
    if name in labels:
        return not values or text(labels, name) in values
    return any(text(each, "key") == name for each in requirements(pool))


def requirements(pool: Object) -> Iterable[Map]:
    """Of a node pool."""
    return items(pool.body, "spec", "template", "spec", "requirements")


def class_group(pool: Object) -> str:
    """The API group of a node pool's class."""
    reference = tree(pool.body, "spec", "template", "spec", "nodeClassRef")
    kind = text(reference, "kind")
    return text(reference, "group") or (SELF_MANAGED_GROUP if kind == "EC2NodeClass" else AUTO_GROUP if kind == "NodeClass" else "")


def class_of(manifests: Manifests, pool: Object) -> Object | None:
    """A node pool's class; None if it was not given."""
    kind = "NodeClass" if class_group(pool) == AUTO_GROUP else "EC2NodeClass"
    return manifests.find(kind, text(pool.body, "spec", "template", "spec", "nodeClassRef", "name"))


def compute(manifests: Manifests, pod: PodTemplate) -> Literal["auto", "karpenter", ""]:
    """Whether the pod's node is made by EKS Auto Mode or by a Karpenter of one's own; empty if unknown."""
    wanted = required(pod)
    if wanted.get("eks.amazonaws.com/compute-type") == ("auto",) or any(
        name.startswith("eks.amazonaws.com/instance-") for name in wanted
    ):
        return "auto"
    if any(name.startswith("karpenter.k8s.aws/") for name in wanted):
        return "karpenter"
    groups = {class_group(pool) for pool in pools(manifests, pod)}
    if len(groups) != 1:
        return ""
    group = groups.pop()
    return "auto" if group == AUTO_GROUP else "karpenter" if group == SELF_MANAGED_GROUP else ""


@lru_cache(maxsize=_REMEMBERED)
def instance_types(manifests: Manifests, pod: PodTemplate) -> list[Instance]:
    """The types that the pod's node can have; empty where one of them is unknown."""
    names = required(pod).get(INSTANCE_TYPE, ())
    if names:
        return _known(names)
    found: list[Instance] = []
    for pool in pools(manifests, pod):
        types = types_of(pool)
        if not types:
            return []
        found += types
    return found


@lru_cache(maxsize=_REMEMBERED)
def types_of(pool: Object) -> list[Instance]:
    """The types that a node pool may start; empty where one is unknown."""
    names: list[str] = []
    for each in requirements(pool):
        if text(each, "operator") == "In" and text(each, "key") == INSTANCE_TYPE:
            return _known([text(value) for value in items(each, "values")])
        if text(each, "operator") == "In" and text(each, "key") in _FAMILIES:
            families = {text(value) for value in items(each, "values")}
            if not families <= {name.partition(".")[0] for name in instances()}:
                return []
            names = [name for name in instances() if name.partition(".")[0] in families]
    return _known(names) if not any("instance-size" in text(each, "key") for each in requirements(pool)) else []


def _known(names: Iterable[str]) -> list[Instance]:
    found = [instances().get(name) for name in names]
    return [each for each in found if each is not None] if None not in found else []


def untolerated(pool: Object, pod: PodTemplate) -> Iterator[str]:
    """Taints of a node pool that keep the pod away. Start-up taints are not among them: somebody takes them off."""
    tolerations = items(pod.spec, "tolerations")
    for taint in items(pool.body, "spec", "template", "spec", "taints"):
        key, effect = text(taint, "key"), text(taint, "effect")
        if effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            yield f"{key}:{effect}"


def _tolerates(toleration: object, taint: object) -> bool:
    if text(toleration, "effect") not in ("", text(taint, "effect")):
        return False
    exists = text(toleration, "operator") == "Exists"
    if text(toleration, "key") != text(taint, "key"):
        return exists and not text(toleration, "key")
    return exists or text(toleration, "value") == text(taint, "value")


def wants_accelerators(pool: Object) -> bool:
    """Whether a node pool can only start nodes with accelerators."""
    types = types_of(pool)
    if types:
        return True  # the catalogue holds no other types
    keys = {text(each, "key") for each in requirements(pool) if text(each, "operator") in ("In", "Exists", "Gt")}
    marks = ("instance-gpu-", "instance-accelerator-")
    return any(mark in key for key in keys for mark in marks)
