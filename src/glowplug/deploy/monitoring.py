"""How Prometheus finds the pods, and what Grafana shows of them: current names of vLLM's metrics only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glowplug.deploy.commented import note
from glowplug.deploy.design import SERVER
from glowplug.deploy.workload import metadata

if TYPE_CHECKING:
    from glowplug.deploy.commented import Object
    from glowplug.deploy.design import Design

_PANELS = (
    ("Requests running and waiting", "short", (
        ("running", "sum(vllm:num_requests_running{SELECTOR})"),
        ("waiting", "sum(vllm:num_requests_waiting{SELECTOR})"),
    )),
    ("Time to first token", "s", (
        ("p50", "histogram_quantile(0.5, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{SELECTOR}[5m])))"),
        ("p95", "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{SELECTOR}[5m])))"),
    )),
    ("Time between tokens", "s", (
        ("p50", "histogram_quantile(0.5, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket{SELECTOR}[5m])))"),
        ("p95", "histogram_quantile(0.95, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket{SELECTOR}[5m])))"),
    )),
    ("KV cache in use", "percentunit", (("{{pod}}", "vllm:kv_cache_usage_perc{SELECTOR}"),)),
    ("Preemptions", "short", (("{{pod}}", "rate(vllm:num_preemptions_total{SELECTOR}[5m])"),)),
    ("Seconds from a pod's creation to ready", "s", (
        ("{{pod}}", "kube_pod_status_ready_time{SELECTOR} - on (namespace, pod) kube_pod_created{SELECTOR}"),
    )),
)  # fmt: skip
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def pod_monitor(design: Design) -> list[Object]:
    """The PodMonitor, if there is to be one."""
    if not design.wish.pod_monitor:
        return []
    return [
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": metadata(design),
            "spec": {
                "selector": {"matchLabels": dict(design.labels(SERVER))},
                "podMetricsEndpoints": [
                    {
                        "port": "http",
                        "path": "/metrics",
                        note("interval", "As often as the autoscaler asks."): f"{design.scaling.poll_s}s",
                    }
                ],
            },
        }
    ]


def dashboard(design: Design) -> list[Object]:
    """A ConfigMap with a dashboard, if there is to be one."""
    if not design.wish.dashboard:
        return []
    about = metadata(design, f"{design.name}-dashboard")
    labels = {**design.labels(), note("grafana_dashboard", "Grafana's sidecar looks for this label."): "1"}
    about["labels"] = labels
    text = json.dumps(_dashboard(design), indent=2) + "\n"
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {f"{design.name}.json": text}}]


def _dashboard(design: Design) -> dict[str, object]:
    pods = f'{{namespace="{design.wish.namespace}",pod=~"{design.name}-[a-z0-9]+-[a-z0-9]{{5}}"}}'
    return {
        "title": f"{design.wish.namespace}/{design.name}",
        "uid": f"glowplug-{design.name}"[:40],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": title,
                "datasource": {"type": "prometheus", "uid": "${source}"},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "gridPos": {
                    "x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT,
                },
                "targets": [
                    {"refId": chr(ord("A") + index), "legendFormat": legend, "expr": query.replace("{SELECTOR}", pods)}
                    for index, (legend, query) in enumerate(queries)
                ],
            }
            for number, (title, unit, queries) in enumerate(_PANELS)
        ],
    }  # fmt: skip
