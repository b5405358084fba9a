"""A load test as a Job of inference-perf, suspended until somebody lets it run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.commented import note
from glowplug.deploy.emit import to_yaml
from glowplug.deploy.pod import confined
from glowplug.deploy.publishing import job_metadata
from glowplug.deploy.workload import metadata

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

IMAGE = "quay.io/inference-perf/inference-perf:v0.7.0"
_REQUESTS = 10
"""For each of those that are sent at once."""
_COMPONENT = "load-test"


def load_test(design: Design) -> list[Object]:
    """Its configuration and the Job, if there is to be one."""
    if not design.wish.load_test:
        return []
    name = f"{design.name}-{_COMPONENT}"
    labels = {**design.labels(), "app.kubernetes.io/component": _COMPONENT}
    about = {**metadata(design, name), "labels": labels}
    configuration: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "data": {"config.yml": to_yaml(_configuration(design))},
    }
    env: list[Object] = [{"name": "HOME", "value": "/tmp"}]  # noqa: S108
    key: list[Node] = []
    if design.wish.api_key_secret:
        key = ["--server.api_key", note("$(API_KEY)", "From the Secret, by the kubelet.")]
        env.append({
            "name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": design.wish.api_key_secret, "key": "api-key"}},
        })  # fmt: skip
    spec: Object = {
            note("suspend", "Runs when you let it, once the Deployment is ready: "
                 f"kubectl -n {design.wish.namespace} patch job NAME -p '{{\"spec\":{{\"suspend\":false}}}}'"): True,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 86_400,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "inference-perf",
                            "image": IMAGE,
                            "command": ["inference-perf"],
                            "args": ["--config_file", "/etc/inference-perf/config.yml", *key],
                            note("workingDir", "The report is written here, and printed in short."): "/tmp",  # noqa: S108
                            "env": env,
                            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
                            "securityContext": confined(),
                            "volumeMounts": [
                                {"name": "config", "mountPath": "/etc/inference-perf", "readOnly": True},
                                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "config", "configMap": {"name": name}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
                    ],
                },
            },
    }  # fmt: skip
    job_about: Object = {**job_metadata(design, _COMPONENT, spec), "labels": labels}
    return [configuration, {"apiVersion": "batch/v1", "kind": "Job", "metadata": job_about, "spec": spec}]


def _configuration(design: Design) -> Object:
    longest = design.max_model_len or 4096
    prompt, answer = longest // 4, longest // 16
    server: Object = {
        "type": "vllm",
        "model_name": design.name,
        "base_url": f"http://{design.name}.{design.wish.namespace}.svc:{design.wish.port}",
        "ignore_eos": True,
    }
    return {
        "load": {
            "type": "concurrent",
            note("stages", "Requests at once: half of, all of and twice the sequences that the replicas were planned for."): [
                {"concurrency_level": level, "num_requests": _REQUESTS * level} for level in _levels(design)
            ],
        },
        "api": {"type": "completion", "streaming": True},
        "server": server,
        "tokenizer": {"pretrained_model_name_or_path": design.wish.load_test},
        "data": {
            "type": "random",
            "input_distribution": _distribution(prompt),
            "output_distribution": _distribution(answer),
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
    }


def _levels(design: Design) -> list[int]:
    planned = design.wish.batch * design.wish.replicas
    return sorted({max(1, planned // 2), planned, 2 * planned})


def _distribution(mean: int) -> Object:
    return {
        "min": max(1, mean // 4),
        "max": max(2, mean * 2),
        "mean": max(2, mean),
        "std_dev": max(1, mean // 4),
        "total_count": 1000,
    }
