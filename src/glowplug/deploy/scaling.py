"""Autoscaling on what vLLM says of its requests: running and waiting, added up over pods. The processor only where asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.commented import note
from glowplug.deploy.workload import accepted, metadata

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

_MOST_STABILIZATION_S = 3600
_CPU_PERCENT = 70
_METRIC = "vllm_requests"
"""For prometheus-adapter, which takes no colons. ``adapter_rule`` makes it."""


def autoscaler(design: Design) -> list[Object]:
    """The ScaledObject or HorizontalPodAutoscaler, if there is to be one."""
    if design.wish.autoscale == "none":
        return []
    return [_scaled_object(design) if design.wish.autoscale == "keda" else _horizontal(design)]


def requests_query(design: Design) -> str:
    """Running and waiting requests of all serving pods, as one number."""
    pods = f'{{namespace="{design.wish.namespace}",pod=~"{design.name}-[a-z0-9]+-[a-z0-9]{{5}}"}}'
    return f"sum(vllm:num_requests_running{pods}) + sum(vllm:num_requests_waiting{pods})"


def adapter_rule() -> str:
    """What prometheus-adapter needs to have a metric for the HorizontalPodAutoscaler."""
    return (
        "rules:\n"
        "  custom:\n"
        '    - seriesQuery: \'vllm:num_requests_running{namespace!="",pod!=""}\'\n'
        "      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}\n"
        f"      name: {{matches: '.*', as: {_METRIC}}}\n"
        "      metricsQuery: 'sum(vllm:num_requests_running{<<.LabelMatchers>>}) by (<<.GroupBy>>)\n"
        "        + sum(vllm:num_requests_waiting{<<.LabelMatchers>>}) by (<<.GroupBy>>)'"
    )


def _limits(design: Design) -> str:
    scaling = design.scaling
    return (
        f"A new replica serves {scaling.lead_s:.0f} s after the signal. With a load that grows by 10 % a minute the plan keeps "
        f"{scaling.warm_pool} more than the load needs."
    )


def _behavior(design: Design) -> Object:
    cooldown_s = min(_MOST_STABILIZATION_S, design.scaling.cooldown_s)
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            note("policies", "No more at once than the load can have grown by while the last one started."): [
                {"type": "Pods", "value": max(1, design.scaling.warm_pool), "periodSeconds": 60}
            ],
        },
        "scaleDown": {
            note("stabilizationWindowSeconds", "Twice a cold start: what is taken away too early has to start again."): cooldown_s,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        },
    }


def _scaled_object(design: Design) -> Object:
    scaling = design.scaling
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(design),
        "spec": {
            "scaleTargetRef": {"name": design.name},
            note("minReplicaCount", _limits(design)): design.wish.replicas,
            "maxReplicaCount": design.max_replicas,
            "pollingInterval": scaling.poll_s,
            note("fallback", "Where Prometheus does not answer, the load is unknown: nothing is scaled away."): {
                "failureThreshold": 4,
                "replicas": design.wish.replicas,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(design)}},
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": design.wish.prometheus,
                        note(
                            "query",
                            "One number for all pods: KEDA refuses a query with several series, which is what two pods would give.",
                        ): requests_query(design),
                        note(
                            "threshold", f"Of {design.fit.batch} sequences at once; the rest grows in while a replica starts."
                        ): str(scaling.running),
                        note(
                            "ignoreNullValues", "No answer is an error and not a load of 0: a wrong label would never scale."
                        ): "false",
                    },
                }
            ],
        },
    }


def _horizontal(design: Design) -> Object:
    about = metadata(design)
    if design.wish.autoscale == "cpu":
        about = accepted(about, "GP401", "the processor was asked for (--autoscale cpu)")
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": about,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": design.name},
            note("minReplicas", _limits(design)): design.wish.replicas,
            "maxReplicas": design.max_replicas,
            "behavior": _behavior(design),
            "metrics": [_of_processor() if design.wish.autoscale == "cpu" else _of_requests(design)],
        },
    }


def _of_requests(design: Design) -> Node:
    return {
        note("type", "prometheus-adapter must have this rule:", *(f"  {line}" for line in adapter_rule().splitlines())): "Pods",
        "pods": {
            "metric": {"name": _METRIC},
            "target": {"type": "AverageValue", "averageValue": str(design.scaling.running)},
        },
    }


def _of_processor() -> Node:
    return {
        note(
            "type",
            "As asked for. An engine's processor is busy whatever its accelerator does: requests (--autoscale keda) say more.",
        ): "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": _CPU_PERCENT}},
    }
