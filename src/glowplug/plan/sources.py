"""Where published figures come from, so that a reader can look each of them up and disagree.

A source is named by a short key in the code and by a number in what a person reads. Nothing here is fetched.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOURCES: Mapping[str, str] = MappingProxyType({
    "eks": "Amazon EKS User Guide, accelerating model loading (Run:ai streamer, torch.compile cache, NAT)",
    "s3": "Amazon S3 User Guide, performance guidelines: 85-90 MB/s a request, 5,500 GET/s a prefix, 100 Gbit/s an instance",
    "ec2": "Amazon EC2 User Guide, EFA on P5: 3,200 Gbit/s in all, 100 Gbit/s of IP traffic with one address",
    "karpenter": "Karpenter AWS provider documentation, instance types, August 2026",
    "neuron": "AWS Neuron documentation, NxD Inference feature guide: TP degrees and memory a core",
    "runai": "Run:ai Model Streamer, docs/src/benchmarks.md (15 GB on a g5.12xlarge), env-vars.md and usage.md",
    "azure": "Microsoft devblog 2026-05-19: 232.8 GiB in 37.1 s over 80 Gbit/s (Run:ai streamer)",
    "ice": "arXiv 2606.07362 and its data, upb-cn/vllm-startup-profiler: vLLM 0.10.1.1, one H100, n=1 a model",
    "instanttensor": "InstantTensor, docs/benchmark.md: safetensors from tmpfs to one H200, 61 GB at 4.81 GB/s",
    "bench-startup": "vllm-project/vllm PR #32191: vllm bench startup, Qwen3-32B, 2026-01",
    "vllm-20264": "vllm-project/vllm #20264: capture 17 s, and 30 s of a 59 s start in no log line",
    "vllm-44881": "vllm-project/vllm #44881: 35B MoE on one RTX 5090, compile 43 s, profiling 210 s",
    "tensorfuse": "tensorfuse.io, reducing GPU cold start: Llama-3.1-8B on an L40S",
    "kaito": "kaito-project/kaito #2325: 27B on an A100, 966 s from nothing, phase by phase",
    "image": "aws-samples/karpenter-blueprints PR #32: 10.76 GB in 138 s; kaito #2325: 5.60 GB in 101 s",
    "node": "aws/karpenter-provider-aws #6128: 70-80 s from launch to registration",
    "keda": "vllm-project/production-stack, KEDA defaults: polling 15 s, cooldown 360 s",
    "shm": "vllm-project/production-stack #276: NCCL fails on the default /dev/shm of 64 MB",
    "hpa": "Kubernetes documentation, HorizontalPodAutoscaler: scale-down stabilisation of 300 s",
    "glowplug": "Glowplug's docs/weights.md: memory formulas, and the figures of its benchmarks",
})  # fmt: skip


def numbered(keys: Iterable[str]) -> dict[str, int]:
    """Each key's footnote number, from 1, in the order of its first use.

    Raises:
        KeyError: no such source.
    """
    numbers: dict[str, int] = {}
    for key in keys:
        if key not in SOURCES:
            raise KeyError(key)
        numbers.setdefault(key, len(numbers) + 1)
    return numbers
