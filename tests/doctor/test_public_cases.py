# ruff: noqa: E501  a case a line
"""Faults that others have reported in public, as manifests: each is found, and its mended twin is not."""

from __future__ import annotations

import pytest

from tests.doctor.cases_pods import CHIP, NONE, daemon, shm
from tests.doctor.kube import as_yaml, claim, cluster, found, hpa, llm, node_pool, other, probe, scaled, volume

S3 = ("s3://models/m", "--load-format=runai_streamer")
POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
TWO = ("Qwen/Qwen3-32B", "--tensor-parallel-size=2")
ROOT_VOLUME = {"limits": {CHIP: 1, "memory": "64Gi", "ephemeral-storage": "8Gi"}}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
QUEUE = {
    "type": "Pods",
    "pods": {"metric": {"name": "vllm_num_requests_waiting"}, "target": {"type": "AverageValue", "averageValue": "5"}},
}
EFS = other("storage.k8s.io/v1", "StorageClass", name="efs", provisioner="efs.csi.aws.com")
INF2 = {"name": "inf2", "instanceType": "inf2.xlarge", "privateNetworking": True}
NEURON_NODE = {"nodeSelector": {"node.kubernetes.io/instance-type": "inf2.24xlarge"}}
WARMING = "glowplug.dev/warming"


def killed(delay):
    return llm(**{**NONE, "readinessProbe": probe(), "livenessProbe": probe(initialDelaySeconds=delay, periodSeconds=30)})


def startup_taint(field):
    pool = node_pool(("karpenter.k8s.aws/instance-family", ["g6e"]))
    pool["spec"]["template"]["spec"] |= {"taints": [], field: [{"key": WARMING, "effect": "NoSchedule"}]}
    return pool


def labelled(kind):
    term = {"matchExpressions": [{"key": "glowplug.dev/warm", "operator": "In", "values": ["true"]}]}
    wanted = {"nodeSelectorTerms": [term]} if kind.startswith("required") else [{"weight": 1, "preference": term}]
    return llm(pod={"affinity": {"nodeAffinity": {kind: wanted}}})


CASES = {
    "P01 KServe: liveness 120 s kills big models": ("GP101", [killed(120)], [llm()]),
    "P01 KServe: liveness 300 s kills big models": ("GP112", [killed(300)], [llm()]),
    "P02 AIBrix: probes restart the pod mid-download": ("GP102", [llm(startupProbe=probe())], [llm(startupProbe=probe(failureThreshold=36))]),
    "P03 AIBrix: startup probe failed on minikube": ("GP102", [llm(startupProbe=probe(periodSeconds=5, failureThreshold=12))], [llm()]),
    "P06 Dynamo: a new hash for each pod": (
        "GP021",
        [llm(env={"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}, image="vllm/vllm-openai:v0.20.1")],
        [llm(env={"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}, image="vllm/vllm-openai:v0.22.0")],
    ),
    "P08 llm-d: caches on emptyDir": ("GP209", [llm(pod={"volumes": volume("cache", emptyDir={})})], [llm()]),
    "P09 GPUStack: compile cache is not kept": ("GP017", [llm(env={"VLLM_CACHE_ROOT": None})], [llm()]),
    "P10 production-stack: /dev/shm stays at 64 MB": (
        "GP201", [llm(*TWO, gpus=2, volumeMounts=[{"name": "cache", "mountPath": "/cache"}])], [llm(*TWO, gpus=2)],
    ),
    "P10 production-stack: /dev/shm on the disk": ("GP202", [llm(*TWO, gpus=2, pod=shm(medium=""))], [llm(*TWO, gpus=2)]),
    "P11 LLMKube: roll-out waits for its own GPU": ("GP107", [llm(spec={"strategy": None})], [llm()]),
    "P13 streamer: defaults unset": ("GP001", [llm(*S3)], [llm(*S3, '--model-loader-extra-config={"concurrency":17}')]),
    "P14 streamer: 1.2 GB/s on P5": ("GP001", [llm(*S3, image="vllm/vllm-openai:v0.11.0")], [llm(*S3, env={"RUNAI_STREAMER_CONCURRENCY": "32"})]),
    "P16 modelplane: 43 minutes from EFS": (
        "GP219",
        [llm("/cache/m", pod={"volumes": volume("cache", persistentVolumeClaim={"claimName": "cache"})}), claim(storageClassName="efs"), EFS],
        [llm("/cache/m"), claim(storageClassName="efs"), EFS],
    ),
    "P18 Neuron: remote cache ignored": ("GP307", [llm(gpus=1, resource=CHIP, env={"VLLM_NEURON_REMOTE_CACHE": "s3://b/c"})], [llm(gpus=1, resource=CHIP)]),
    "P21 Neuron: the extender crashed": (
        "GP303", [llm(gpus=1, resource=CHIP, pod={"schedulerName": "my-scheduler"})], [llm(gpus=1, resource=CHIP)],
    ),
    "P22 Neuron: TP hangs on part of a node": (
        "GP304",
        [llm(gpus=2, resource=CHIP, pod=NEURON_NODE)],
        [llm(gpus=2, resource=CHIP, pod={**NEURON_NODE, "schedulerName": "my-scheduler"})],
    ),
    "P23 eksctl: image without driver": (
        "GP525",
        [cluster({**INF2, "amiFamily": "AmazonLinux2"}, version="1.29")],
        [cluster({**INF2, "amiFamily": "AmazonLinux2023"}, version="1.29")],
    ),
    "P24 DeepSeek on EKS: out of ephemeral storage": (
        "GP220", [llm(resources=ROOT_VOLUME)], [llm(resources={"limits": {CHIP: 1, "memory": "64Gi", "ephemeral-storage": "100Gi"}})],
    ),
    "P24 DeepSeek on EKS: small root volume": ("GP523", [cluster({**INF2, "volumeSize": 30})], [cluster({**INF2, "volumeSize": 200})]),
    "P25 Karpenter: start-up taint": ("GP501", [startup_taint("taints")], [startup_taint("startupTaints")]),
    "P28 KServe: new nodes have no cache object": (
        "GP507",
        [labelled("requiredDuringSchedulingIgnoredDuringExecution")],
        [labelled("preferredDuringSchedulingIgnoredDuringExecution")],
    ),
    "nebari: the plugin never ran on tainted nodes": (
        "GP316",
        [daemon("nvcr.io/nvidia/k8s-device-plugin:v0.17.0"), node_pool(("karpenter.k8s.aws/instance-family", ["g6e"]), taints=["nvidia.com/gpu"])],
        [daemon("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", tolerations=[{"operator": "Exists"}]),
         node_pool(("karpenter.k8s.aws/instance-family", ["g6e"]), taints=["nvidia.com/gpu"])],
    ),
    "production-stack: KEDA at the second pod": ("GP402", [scaled("vllm:num_requests_waiting")], [scaled("sum(vllm:num_requests_waiting)")]),
    "workshop: HPA on CPU": ("GP401", [llm(), hpa(CPU)], [llm(), hpa(QUEUE)]),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "broken", "mended"), list(CASES.values()), ids=list(CASES))
def test_it_is_found_and_its_twin_is_not(rule, broken, mended):
    assert rule in found(broken), as_yaml(*broken)
    assert rule not in found(mended), as_yaml(*mended)
