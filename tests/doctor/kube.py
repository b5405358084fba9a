"""Small manifests for the tests: one well-made Deployment of vLLM, and what makes another object around it. Parts are replaced."""

from __future__ import annotations

import copy
import io

import yaml

from glowplug.doctor.checking import check_manifests
from glowplug.doctor.reading import read

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
HEALTH = {"httpGet": {"path": "/health", "port": 8000}}


def probe(**values):
    return {**copy.deepcopy(HEALTH), **values}


def container(*args, image="vllm/vllm-openai:v0.21.0", env=None, gpus=1, resource="nvidia.com/gpu", memory="80Gi", **more):
    """A container of vLLM that no rule finds anything in. A value of None takes a field away."""
    made = {
        "name": "vllm",
        "image": image,
        "command": ["vllm", "serve"],
        "args": list(args) or ["Qwen/Qwen3-8B"],
        "env": [
            {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}
            for name, value in {"VLLM_CACHE_ROOT": "/cache/vllm", **(env or {})}.items()
            if value is not None
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {
            "requests": {"memory": memory} if memory else {},
            "limits": ({"memory": memory} if memory else {}) | ({resource: gpus} if gpus else {}),
        },
        "startupProbe": probe(periodSeconds=10, failureThreshold=60),
        "readinessProbe": probe(),
        "livenessProbe": probe(),
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    return without_none({**made, **more})


def pod_spec(*args, pod=None, **container_values):
    """A pod with that container."""
    made = {
        "serviceAccountName": "llm",
        "containers": [container(*args, **container_values)],
        "volumes": [
            {"name": "cache", "hostPath": {"path": "/var/cache/glowplug", "type": "Directory"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        ],
    }
    return without_none({**made, **(pod or {})})


def llm(*args, kind="Deployment", name="llm", spec=None, metadata=None, template=None, labels=None, **values):
    """A workload of that pod; ``spec`` and the rest replace its parts."""
    labels = labels or {"app": "llm"}
    made = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, **(template or {})}, "spec": pod_spec(*args, **values)},
    }
    if kind == "Deployment":
        made |= {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, "progressDeadlineSeconds": 1200}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, **(metadata or {})},
        "spec": without_none({**made, **(spec or {})}),
    }


def other(api_version, kind, spec=None, name="x", **more):
    """Any other object."""
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}}
    return {**made, **({"spec": spec} if spec is not None else {}), **more}


def service(name="llm", **spec):
    return other("v1", "Service", {"selector": {"app": "llm"}, "ports": [{"port": 80, "targetPort": 8000}], **spec}, name)


def node_pool(*requirements, name="gpu", group="karpenter.k8s.aws", taints=(), metadata=None, limits=None, **spec):
    """A Karpenter node pool; requirements are pairs of a key and its values."""
    kind = "NodeClass" if group == "eks.amazonaws.com" else "EC2NodeClass"
    template = {
        "nodeClassRef": {"group": group, "kind": kind, "name": "gpu"},
        "requirements": [{"key": key, "operator": "In", "values": list(values)} for key, values in requirements],
        "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
    }
    pool = {"template": {"metadata": metadata or {}, "spec": template}, "limits": limits or {}, **spec}
    return other("karpenter.sh/v1", "NodePool", pool, name)


def node_class(**spec):
    return other("karpenter.k8s.aws/v1", "EC2NodeClass", spec, "gpu")


def claim(name="cache", modes=("ReadWriteOnce",), **spec):
    made = {"accessModes": list(modes), "resources": {"requests": {"storage": "100Gi"}}, **spec}
    return other("v1", "PersistentVolumeClaim", made, name)


def volume(name, **source):
    """The pod's two volumes, with the one for the cache replaced."""
    return [{"name": name, **source}, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]


def hpa(*metrics, name="llm", target="llm", **spec):
    scaled = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": 2}
    return other("autoscaling/v2", "HorizontalPodAutoscaler", {**scaled, "metrics": list(metrics), **spec}, name)


def scaled(*queries, target="llm", **spec):
    triggers = [{"type": "prometheus", "metadata": {"query": query, "threshold": "5"}} for query in queries]
    made = {"scaleTargetRef": {"name": target}, "minReplicaCount": 1, "maxReplicaCount": 2, "triggers": triggers, **spec}
    return other("keda.sh/v1alpha1", "ScaledObject", made, "llm")


def cluster(*groups, version="1.33", managed=True):
    body = {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig", "metadata": {"name": "c", "version": version}}
    return {**body, ("managedNodeGroups" if managed else "nodeGroups"): list(groups)}


def without_none(mapping):
    return {name: value for name, value in mapping.items() if value is not None}


def as_yaml(*objects):
    """One stream; a text is taken as it is."""
    return "---\n".join(each if isinstance(each, str) else yaml.safe_dump(each, sort_keys=False) for each in objects)


def check(text):
    """What the doctor finds in YAML text, or in objects."""
    if not isinstance(text, str):
        text = as_yaml(*text)
    return check_manifests(read(["-"], io.BytesIO(text.encode())))


def found(text, severities=("error", "warning", "info")):
    """The ids of the rules that find something."""
    return [each.rule for each in check(text).findings if each.severity in severities]
