"""Pods against the node pools that were given with them: what can never be placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor import placing
from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree
from glowplug.doctor.pods import CHIPS, CORES, GPUS
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import Container, PodTemplate
    from glowplug.plan.catalogue import Instance

_OWN = "glowplug.dev/"


def _not_tolerated(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        if placing.POOL not in placing.required(pod):
            continue
        pools = placing.pools(manifests, pod)
        missing = [list(placing.untolerated(pool, pod)) for pool in pools]
        if pools and all(missing):
            yield pod.problem(("tolerations",), f"doesn't tolerate {missing[0][0]} of {pools[0].label}, the pool that it names")


def _late_label(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        for name, values in placing.required(pod).items():
            offered = any(placing.offers(pool, name, values) for pool in manifests.of("NodePool"))
            if name.startswith(_OWN) and not offered:
                yield pod.problem(
                    (), f"requires the node label {name}, which is set after the node exists: Karpenter starts none for it"
                )


def _amounts(pod: PodTemplate) -> Iterator[tuple[Container, str, int]]:
    for container in pod.containers:
        for name in (*GPUS, *CHIPS, CORES):
            if amount := container.count(name):
                yield container, name, amount


def _offered(kind: Instance, resource: str) -> int:
    if kind.accelerator.kind == "gpu":
        return kind.devices if resource == "nvidia.com/gpu" else 0
    if kind.accelerator.kind == "neuron":
        return kind.chips if resource in CHIPS else kind.devices if resource == CORES else 0
    return 0


def _no_such_node(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        types = placing.instance_types(manifests, pod)
        if not types or any(each.accelerator.kind == "other" or not each.devices for each in types):
            continue
        for container, resource, amount in _amounts(pod):
            most = max(types, key=lambda kind: _offered(kind, resource))
            if amount > _offered(most, resource) and resource not in (CORES, "amd.com/gpu"):
                has = _offered(most, resource) or "none"
                yield container.problem(
                    ("resources",), f"asks for {amount} {resource}, and the largest node it may have ({most.name}) has {has}"
                )


def _too_large(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        types = placing.instance_types(manifests, pod)
        if not types:
            continue
        for name, most, unit in (
            ("memory", max(each.allocatable_bytes for each in types), 2**30),
            ("cpu", max(each.allocatable_mcpu for each in types) / 1000, 1),
        ):
            wanted = sum(
                next((size for part in ("requests", "limits") if (size := each.resource(name, part)) is not None), 0.0)
                for each in pod.containers
            )
            if wanted > most:
                amount, given = (f"{value / unit:,.0f}{' GiB' if unit > 1 else ''}" for value in (wanted, most))
                yield pod.problem(("containers",), f"requests {amount} of {name}, and the largest node it may have gives {given}")


def _over_limit(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        if placing.POOL not in placing.required(pod) or pod.kind not in ("Deployment", "StatefulSet"):
            continue
        for pool in placing.pools(manifests, pod):
            for resource, limit in tree(pool.body, "spec", "limits").items():
                each, given = sum(container.count(resource) for container in pod.containers), quantity(text(limit))
                if "/" in resource and each and given is not None and pod.replicas * each > given:
                    what = (
                        f"{pod.replicas} replicas take {pod.replicas * each} {resource}, and {pool.label} is limited to {given:g}"
                    )
                    yield pod.object.problem(("spec", "replicas"), what)


def _permanent_taint(manifests: Manifests) -> Iterator[Problem]:
    for pool in manifests.of("NodePool"):
        for index, taint in enumerate(items(pool.body, "spec", "template", "spec", "taints")):
            if text(taint, "key").startswith((_OWN, "readiness.k8s.io/")):
                path = ("spec", "template", "spec", "taints", index)
                yield pool.problem(
                    path, f"{text(taint, 'key')[:60]} is taken off by an agent, and is declared as a permanent taint"
                )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP501",
        "Start-up taint declared as a permanent one",
        "error",
        "Karpenter takes a permanent taint for a reason why the pod can't use the pool, and starts no node. A start-up taint that"
        " is not declared makes it start node after node.",
        "Declare it in spec.template.spec.startupTaints.",
        ("P25", "P27", "https://karpenter.sh/docs/faq/"),
        _permanent_taint,
    ),
    Rule(
        "GP505",
        "Pod that does not tolerate its own node pool",
        "error",
        "The pod names the pool and may not run there: Pending for ever.",
        "Add the toleration, such as key: nvidia.com/gpu, operator: Exists, effect: NoSchedule.",
        ("A63",),
        _not_tolerated,
    ),
    Rule(
        "GP507",
        "Required label that a node gets only later",
        "error",
        "Karpenter matches pods against what a node pool promises. A label that an agent sets on a running node is not there, so"
        " no node is started for the pod.",
        "Use preferredDuringSchedulingIgnoredDuringExecution, or a start-up taint.",
        ("https://karpenter.sh/docs/concepts/scheduling/", "P28"),
        _late_label,
    ),
    Rule(
        "GP508",
        "More accelerators than any of its nodes has",
        "error",
        "No node that the pod may run on has so many, or none of this kind: Pending for ever.",
        "Choose a larger type, or fewer devices; glowplug plan MODEL --instance TYPE finds what fits.",
        ("A16", "B01", "B20"),
        _no_such_node,
    ),
    Rule(
        "GP509",
        "More memory or processors than any of its nodes has",
        "error",
        "What a node gives to pods is less than what the machine has: the kubelet and the system keep some.",
        "Lower the requests to what glowplug plan computes.",
        ("A64", "https://karpenter.sh/docs/reference/instance-types/"),
        _too_large,
    ),
    Rule(
        "GP511",
        "Replicas beyond the node pool's limit",
        "warning",
        "The pods beyond it stay Pending.",
        "Raise spec.limits of the node pool, or lower replicas.",
        ("B20",),
        _over_limit,
    ),
)
