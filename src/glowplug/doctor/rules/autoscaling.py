"""Autoscalers of engines: wrong signals, queries that break at the second pod, and replicas that can't be placed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor import placing
from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, number, text, tree
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object

_SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
_AGGREGATE = re.compile(
    r"\b(?:sum|avg|max|min|count|quantile|topk|bottomk|scalar|absent|group|stddev|histogram_quantile)\s*(?:by\s*\(|without\s*\(|\()"
)
_SPLIT = re.compile(r"\b(?:by|without)\s*\(\s*[^)\s]")


def hpa_metrics(scaler: Object) -> list[str]:
    """Names of the metrics of an HPA; ``cpu`` and ``memory`` for resources."""
    names = []
    for metric in items(scaler.body, "spec", "metrics"):
        for part in ("resource", "containerResource"):
            names += [text(metric, part, "name")] if text(metric, part, "name") else []
        for part in ("pods", "object", "external"):
            names += [text(metric, part, "metric", "name")] if text(metric, part, "metric", "name") else []
    if not names and (
        text(scaler.body, "spec", "targetCPUUtilizationPercentage") or text(scaler.body, "apiVersion") == "autoscaling/v1"
    ):
        names = ["cpu"]
    return names


def queries(scaler: Object) -> Iterator[tuple[int, str]]:
    """The place and the query of each Prometheus trigger of a ScaledObject."""
    for index, trigger in enumerate(items(scaler.body, "spec", "triggers")):
        if text(trigger, "type") == "prometheus":
            yield index, text(trigger, "metadata", "query")


def _serves(manifests: Manifests, scaler: Object) -> bool:
    target = manifests.target(scaler)
    pod = manifests.template(target) if target is not None else None
    return pod is not None and (pod.accelerated or manifests.engine(pod) is not None)


def _by_cpu(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        names = hpa_metrics(scaler)
        if names and set(names) <= {"cpu", "memory"} and _serves(manifests, scaler):
            yield scaler.problem(
                ("spec", "metrics"), f"scales an engine by {' and '.join(sorted(set(names)))}, which doesn't follow its load"
            )
    for scaler in manifests.of("ScaledObject"):
        kinds = {text(trigger, "type") for trigger in items(scaler.body, "spec", "triggers")}
        if kinds and kinds <= {"cpu", "memory"} and _serves(manifests, scaler):
            yield scaler.problem(
                ("spec", "triggers"), f"scales an engine by {' and '.join(sorted(kinds))}, which doesn't follow its load"
            )


def _many_series(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("ScaledObject"):
        for index, query in queries(scaler):
            aggregated = bool(_AGGREGATE.search(query))
            split = query.lstrip().startswith(("sum", "avg", "max", "min")) and bool(_SPLIT.search(query)) and query.count("(") <= 2
            if re.search(r"\b(?:vllm|sglang)[:_]", query) and (not aggregated or split):
                path = ("spec", "triggers", index, "metadata", "query")
                yield scaler.problem(
                    path, "the query gives one series a pod, and KEDA takes one value only: it fails at the second pod"
                )


def _colon(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        for name in hpa_metrics(scaler):
            if ":" in name:
                yield scaler.problem(
                    ("spec", "metrics"), f"the metric {name[:60]} has a colon, which the Prometheus adapter renames"
                )


def _target_missing(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of(*_SCALERS):
        reference = tree(scaler.body, "spec", "scaleTargetRef")
        kind, name = text(reference, "kind") or "Deployment", text(reference, "name")
        if kind not in ("Deployment", "StatefulSet") or manifests.target(scaler) is not None:
            continue
        beside = [each.name for each in manifests.of(kind) if each.file == scaler.file and each.namespace == scaler.namespace]
        near = [each for each in beside if each in name or name in each] or (beside if len(beside) == 1 else [])
        if near and name:
            yield scaler.problem(("spec", "scaleTargetRef", "name"), f"scales {kind} {name[:60]}; this file has {near[0][:60]}")


def _beyond_pool(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of(*_SCALERS):
        target = manifests.target(scaler)
        pod = manifests.template(target) if target is not None else None
        field = "maxReplicas" if scaler.kind == "HorizontalPodAutoscaler" else "maxReplicaCount"
        most = number(scaler.body, "spec", field)
        if pod is None or placing.POOL not in placing.required(pod):
            continue
        for pool in placing.pools(manifests, pod):
            for resource, limit in tree(pool.body, "spec", "limits").items():
                each = sum(container.count(resource) for container in pod.containers) if "/" in resource else 0
                given = quantity(text(limit))
                if each and given is not None and most * each > given:
                    what = f"{most} replicas take {most * each} {resource}, and {pool.label} is limited to {given:g}"
                    yield scaler.problem(("spec", field), what)


def _to_zero(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        if number(scaler.body, "spec", "minReplicas", default=1) == 0:
            yield scaler.problem(("spec", "minReplicas"), "an HPA scales to 0 only with a feature gate that EKS does not set")


def _never_from_zero(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("ScaledObject"):
        asked = [query for _, query in queries(scaler)]
        own = bool(asked) and all(re.search(r"\bvllm[:_]", query) and "router" not in query for query in asked)
        if (
            own
            and len(asked) == len(items(scaler.body, "spec", "triggers"))
            and number(scaler.body, "spec", "minReplicaCount") == 0
        ):
            what = "may scale to 0, and is woken by metrics of the engine alone, which nobody reports then"
            yield scaler.problem(("spec", "minReplicaCount"), what)


def _two_scalers(manifests: Manifests) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], Object] = {}
    for scaler in manifests.of(*_SCALERS):
        reference = tree(scaler.body, "spec", "scaleTargetRef")
        key = (scaler.namespace, text(reference, "kind") or "Deployment", text(reference, "name"))
        if key in seen:
            yield scaler.problem(
                ("spec", "scaleTargetRef"), f"scales {key[1]} {key[2][:60]}, which {seen[key].label} scales as well"
            )
        seen.setdefault(key, scaler)


def _replicas_fixed(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of(*_SCALERS):
        target = manifests.target(scaler)
        if target is not None and "replicas" in tree(target.body, "spec") and _serves(manifests, scaler):
            yield target.problem(("spec", "replicas"), f"replicas is set here and by {scaler.label}: each apply undoes the scaling")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP401",
        "Engine scaled by CPU or memory",
        "warning",
        "The work is on the accelerator: CPU says little about it, and the engine's memory never falls, so nothing is scaled in.",
        "Scale by vllm:num_requests_waiting (throughput) or vllm:num_requests_running (latency), summed over the pods.",
        ("B22", "A05", "https://cloud.google.com/kubernetes-engine/docs/best-practices/machine-learning/inference/autoscaling"),
        _by_cpu,
    ),
    Rule(
        "GP402",
        "Query that is not aggregated",
        "error",
        'KEDA\'s Prometheus scaler ends with "returned multiple elements" when a query gives more than one series: with one pod it'
        " works, with the second it breaks.",
        "Wrap it: sum(vllm:num_requests_waiting).",
        ("https://keda.sh/docs/latest/scalers/prometheus/", "B22"),
        _many_series,
    ),
    Rule(
        "GP405",
        "Colon in a metric's name",
        "warning",
        "Names in the custom metrics API have no colon: the adapter's rules rename vllm:num_requests_waiting, as a rule to"
        " vllm_num_requests_waiting. An HPA that asks for the old name never scales.",
        "Use the name that the adapter serves: kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2.",
        ("https://github.com/vllm-project/production-stack",),
        _colon,
    ),
    Rule(
        "GP406",
        "Autoscaler of something that is not there",
        "warning",
        "The name matches no workload in the file, and one beside it is nearly called so. It scales nothing, and says so only in"
        " its status.",
        "Correct scaleTargetRef.",
        ("B22",),
        _target_missing,
    ),
    Rule(
        "GP407",
        "More replicas than the node pool has accelerators",
        "warning",
        "The pods beyond the limit stay Pending.",
        "Raise the limit of the node pool, or lower the most replicas.",
        ("B20", "A05"),
        _beyond_pool,
    ),
    Rule(
        "GP408",
        "HPA to zero",
        "error",
        "minReplicas: 0 needs the feature gate HPAScaleToZero, and the API server refuses it otherwise.",
        "Use KEDA, or 1.",
        ("https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/",),
        _to_zero,
    ),
    Rule(
        "GP409",
        "Scaled to zero, and never back",
        "warning",
        "minReplicaCount is 0 by default. With no pod nobody reports vllm:* metrics, an empty answer counts as 0, and nothing"
        " wakes the workload.",
        "Set minReplicaCount: 1, or add a trigger that a gateway reports.",
        ("https://keda.sh/docs/latest/reference/scaledobject-spec/",),
        _never_from_zero,
    ),
    Rule(
        "GP412",
        "Two autoscalers of one workload",
        "error",
        "They undo each other. A ScaledObject makes an HPA of its own, and KEDA refuses a workload that has one.",
        "Keep one.",
        ("https://keda.sh/docs/latest/concepts/scaling-deployments/",),
        _two_scalers,
    ),
    Rule(
        "GP413",
        "Replicas set beside an autoscaler",
        "info",
        "Every apply sets the number back, and the pods above it, with all that they have loaded, are ended.",
        "Leave replicas out of the manifest.",
        ("https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/",),
        _replicas_fixed,
    ),
)
