"""Metrics: names that vLLM reports no more, ports that nobody scrapes, and metrics that are switched off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree
from glowplug.doctor.rules.autoscaling import hpa_metrics, queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object

_SUCCESSORS = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "cpu_cache_usage_perc": "kv_cache_usage_perc",
    "time_per_output_token_seconds": "inter_token_latency_seconds",
    "num_requests_swapped": "num_preemptions",
    "gpu_prefix_cache_hit_rate": "prefix_cache_hits over prefix_cache_queries",
    "cpu_prefix_cache_hit_rate": "prefix_cache_hits over prefix_cache_queries",
    "avg_prompt_throughput_toks_per_s": "the rate of prompt_tokens_total",
    "avg_generation_throughput_toks_per_s": "the rate of generation_tokens_total",
}
_REMOVED = re.compile(r"\bvllm[:_](" + "|".join(_SUCCESSORS) + r")(?:_bucket|_sum|_count)?\b")


def _gone(written: str) -> str:
    """What is said of the first removed metric in a text; empty if there is none."""
    found = _REMOVED.search(written) if "vllm" in written else None
    return f"{found[0]} is reported no more; use {_SUCCESSORS[found[1]]}" if found else ""


def _scaled_by_removed(manifests: Manifests) -> Iterator[Problem]:
    for scaler in manifests.of("ScaledObject"):
        for index, query in queries(scaler):
            if said := _gone(query):
                yield scaler.problem(("spec", "triggers", index, "metadata", "query"), said)
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        for name in hpa_metrics(scaler):
            if said := _gone(name):
                yield scaler.problem(("spec", "metrics"), said)


def _shown_removed(manifests: Manifests) -> Iterator[Problem]:
    for config in manifests.of("ConfigMap"):
        for name, value in tree(config.body, "data").items():
            if said := _gone(text(value)):
                yield config.problem(("data", name), said)
    for rules in manifests.of("PrometheusRule"):
        for group, body in enumerate(items(rules.body, "spec", "groups")):
            for index, rule in enumerate(items(body, "rules")):
                if said := _gone(text(rule, "expr")):
                    yield rules.problem(("spec", "groups", group, "rules", index, "expr"), said)


def _port_names(manifests: Manifests, monitor: Object) -> set[str] | None:
    """The ports by name of what a monitor selects; None where nothing that it selects was given."""
    if tree(monitor.body, "spec", "namespaceSelector"):
        return None
    if monitor.kind == "PodMonitor":
        pods = manifests.selected(monitor)
        return (
            {text(port, "name") for pod in pods for each in pod.containers for port in items(each.body, "ports")} if pods else None
        )
    selector = tree(monitor.body, "spec", "selector", "matchLabels")
    services = [
        each for each in manifests.of("Service")
        if selector and each.namespace == monitor.namespace
        and all(tree(each.body, "metadata", "labels").get(name) == value for name, value in selector.items())
    ]  # fmt: skip
    return {text(port, "name") for each in services for port in items(each.body, "spec", "ports")} if services else None


def _not_scraped(manifests: Manifests) -> Iterator[Problem]:
    for monitor in manifests.of("PodMonitor", "ServiceMonitor"):
        field = "podMetricsEndpoints" if monitor.kind == "PodMonitor" else "endpoints"
        names = _port_names(manifests, monitor)
        for index, endpoint in enumerate(items(monitor.body, "spec", field)):
            port = text(endpoint, "port")
            if names is not None and port and port not in names:
                has = ", ".join(sorted(names - {""})) or "none with a name"
                yield monitor.problem(
                    ("spec", field, index, "port"), f"scrapes the port {port[:40]}; what it selects has {has[:60]}"
                )


def _switched_off(manifests: Manifests) -> Iterator[Problem]:
    watched = {pod for monitor in manifests.of("PodMonitor") for pod in manifests.selected(monitor)}
    scaled = {manifests.target(scaler) for scaler in manifests.of("HorizontalPodAutoscaler", "ScaledObject")}
    for engine in manifests.engines:
        pod = engine.container.pod
        off = engine.name == "vllm" and engine.arguments.values.get("disable-log-stats") is True
        if off and (pod in watched or pod.object in scaled):
            yield engine.problem(
                "--disable-log-stats: vLLM reports no metrics of requests, and somebody waits for them", "disable-log-stats"
            )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP403",
        "Scaled by a metric that is gone",
        "error",
        "vLLM's V1 engine has renamed or dropped it. The query's answer is empty, empty counts as 0, and nothing is ever scaled.",
        "Use the name that the message says.",
        ("https://github.com/vllm-project/vllm/pull/18354", "https://docs.vllm.ai/en/latest/design/metrics/"),
        _scaled_by_removed,
    ),
    Rule(
        "GP404",
        "Dashboard or alert on a metric that is gone",
        "warning",
        "vLLM's V1 engine has renamed or dropped it: the panel stays empty and the alert silent.",
        "Use the name that the message says.",
        ("https://github.com/vllm-project/vllm/pull/18354", "https://docs.vllm.ai/en/latest/design/metrics/"),
        _shown_removed,
    ),
    Rule(
        "GP414",
        "Monitor of a port that is not there",
        "warning",
        "A monitor names ports by name. With another name it scrapes nothing and says nothing.",
        "Name the port in the pod (PodMonitor) or the Service (ServiceMonitor) as the monitor does.",
        ("B36", "https://prometheus-operator.dev/docs/developer/getting-started/"),
        _not_scraped,
    ),
    Rule(
        "GP416",
        "Metrics switched off where somebody needs them",
        "warning",
        "--disable-log-stats takes away the metrics too, not the log lines alone.",
        "Remove --disable-log-stats.",
        ("B36", "https://docs.vllm.ai/en/latest/design/metrics/"),
        _switched_off,
    ),
)
