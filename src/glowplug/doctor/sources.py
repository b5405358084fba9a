"""Where the rules' facts come from, so that a reader can look each of them up and disagree.

Rows are those of ``docs/inventory.md``: A of the Amazon EKS User Guide's page on fast model loading, B of a workshop on vLLM with
Trainium, X for what corrects or completes them, P for a case that somebody reported in public. Nothing here is fetched.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_EKS = "https://docs.aws.amazon.com/eks/latest/userguide/ml-inference-fast-model-loading.html"
_WORKSHOP = "AWS workshop on vLLM with Trainium on EKS"
_GITHUB = "https://github.com/"
_STREAMER = "run-ai/runai-model-streamer"

_BY_PREFIX = {"A": f"Amazon EKS User Guide, fast model loading, {_EKS}", "B": _WORKSHOP}

_CORRECTIONS = {
    "X01": f"{_STREAMER}, docs/src/env-vars.md: 8 requests of 8 MiB for object stores, at least 5 MiB",
    "X02": f"{_STREAMER}, cpp/s3/client_configuration: time-out 1000 ms, low-speed limit off",
    "X03": f"{_STREAMER}, docs/src/usage.md: ranks split the reading and broadcast; on by default with NCCL",
    "X04": f"{_STREAMER}, docs/src/usage.md: the CPU buffer's limit",
    "X05": f"{_GITHUB}rllm-org/rllm/pull/490: V0 was deprecated for vLLM 0.12",
    "X06": f"{_GITHUB}vllm-project/vllm/pull/24922: streamer and compile cache together, September 2025",
    "X07": f"{_GITHUB}vllm-project/vllm/pull/46235: addresses of the pod in the hash",
    "X08": "https://docs.vllm.ai/en/latest/design/torch_compile/: what the hash is made of",
    "X09": f"{_GITHUB}vllm-project/vllm/pull/38962: the device's index in the path",
    "X10": f"{_GITHUB}NovaSky-AI/SkyRL/pull/2138 and vllm-project/vllm PR #27616: concurrent writers",
    "X11": f"{_GITHUB}vllm-project/vllm/pull/47374: VLLM_FORCE_AOT_LOAD",
    "X12": f"{_GITHUB}aws-neuron/aws-neuron-sdk/issues/1368: the remote cache has no effect",
    "X13": "aws/karpenter-provider-aws, pkg/providers/amifamily/bootstrap/bottlerocket.go: ephemeral storage of Bottlerocket",
    "X14": f"{_GITHUB}awsdocs/amazon-eks-user-guide/pull/1076: ephemeralStorage.size the other way round",
    "X15": "AWS Neuron documentation, device management on Kubernetes: DRA driver from 1.34 on",
    "X16": "Amazon EKS User Guide, Auto Mode: the plugins that it includes",
    "X17": "Karpenter documentation, scheduling: sizes of Neuron requests",
    "X18": f"{_GITHUB}aws-neuron/neuron-helm-charts: values.yaml, custom-scheduler.yaml (2024)",
    "X19": f"{_GITHUB}awslabs/mountpoint-s3/blob/main/doc/SEMANTICS.md: no renaming, no links",
}
_CASES = {
    "P01": "kserve/kserve/issues/5062", "P02": "vllm-project/aibrix/issues/772", "P03": "vllm-project/aibrix/issues/1054",
    "P04": "kubeai-project/kubeai/issues/172", "P05": "llm-d/llm-d-benchmark/issues/83", "P06": "ai-dynamo/dynamo/issues/10695",
    "P07": "vllm-project/vllm/issues/20264", "P08": "llm-d/llm-d/issues/2216", "P09": "gpustack/gpustack/issues/5175",
    "P10": "vllm-project/production-stack/issues/276", "P11": "defilantech/LLMKube/issues/192", "P13": f"{_STREAMER}/issues/120",
    "P14": f"{_STREAMER}/issues/31", "P15": "marin-community/marin/issues/7525", "P16": "modelplaneai/modelplane/issues/204",
    "P18": "aws-neuron/aws-neuron-sdk/issues/1368", "P19": "aws-neuron/aws-neuron-sdk/issues/1369",
    "P20": "aws-neuron/aws-neuron-sdk/issues/1338", "P21": "aws-neuron/aws-neuron-sdk/issues/796",
    "P22": "aws-neuron/aws-neuron-sdk/issues/1163", "P23": "eksctl-io/eksctl/issues/7683",
    "P24": "aws-samples/deepseek-using-vllm-on-eks/issues/11", "P25": "kubernetes-sigs/karpenter/issues/1772",
    "P27": "kubernetes-sigs/karpenter/issues/1479", "P28": "kserve/kserve/issues/4771",
    "P30": "aws-samples/bottlerocket-images-cache/issues/13", "P32": "ai-dynamo/dynamo/issues/874",
    "P36": "pytorch/ci-infra/pull/1032", "P37": "kaito-project/kaito/issues/2325", "P40": "ai-dynamo/snapshot/issues/311",
}  # fmt: skip

SOURCES: Mapping[str, str] = MappingProxyType({**_CORRECTIONS, **{row: _GITHUB + case for row, case in _CASES.items()}})
"""Each X and P row, and what it refers to."""


def told(source: str) -> str:
    """What a person reads of a rule's source: a row with what it refers to, or the URL that it is.

    Raises:
        KeyError: no such row.
    """
    if source.startswith("https://"):
        return source
    return f"{source}: {_BY_PREFIX.get(source[:1]) or SOURCES[source]}"
