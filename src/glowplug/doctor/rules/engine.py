"""An engine's command and image: what it asks for against what it gets, and what keeps it from starting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.serving import Engine

_MULTI_NODE = ("LeaderWorkerSet", "RayCluster", "RayService", "LLMInferenceService")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_V0_GONE = (0, 12)
_DEPRECATED_SINCE = (0, 11)
_FULL = 0.98
_UNRESOLVED = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_LOGIN = re.compile(r"(?:huggingface-cli|hf auth) login")
_STRICT = re.compile(r"(?:^|[\s;&])set -[a-z]*e|(?:^|\n)-[a-z]*e[a-z]*(?:\n|$)")


def _one_node(engine: Engine) -> bool:
    options = ("nnodes", "node-rank", "data-parallel-size-local", "headless", "data-parallel-address", "data-parallel-rank")
    several = any(engine.given(name) for name in options) or engine.arguments.text("distributed-executor-backend") == "ray"
    return engine.complete and not several and engine.container.pod.kind not in _MULTI_NODE


def _too_few_gpus(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        gpus = engine.container.gpus
        if gpus and _one_node(engine) and engine.devices > gpus:
            yield engine.problem(
                f"takes {engine.devices} GPUs (TP x PP x DP), and the container gets {gpus}", "tensor-parallel-size"
            )


def _idle_gpus(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        gpus = engine.container.gpus
        if gpus and _one_node(engine) and engine.devices < gpus:
            yield engine.problem(f"takes {engine.devices} of the container's {gpus} GPUs; the others stay idle, and are paid for")


def _loose_tag(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        if container.image and "@" not in container.image and container.tag in ("", "latest", "nightly"):
            tag = container.tag or "no tag"
            yield container.problem(("image",), f"the image {container.image} has {tag}: each pull may bring another engine")


def _deprecated_entry(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.name == "vllm" and engine.entry == "module" and engine.version >= _DEPRECATED_SINCE:
            yield engine.problem("starts vLLM by its API server's module; upstream asks for vllm serve")


def _loopback(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        alone = len(engine.container.pod.containers) == 1  # a proxy beside it may be what talks to the world
        if engine.arguments.text("host") in _LOOPBACK and alone:
            yield engine.problem(f"listens on {engine.arguments.text('host')} only: no probe and no Service reaches it", "host")


def _v0(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        if engine.name == "vllm" and container.env.get("VLLM_USE_V1") == "0":
            distributed = engine.streams and engine.streamer.get("distributed") is True
            if engine.version >= _V0_GONE or distributed:
                why = "distributed streaming needs V1" if distributed else "this vLLM has no other engine"
                yield container.problem(container.env_path("VLLM_USE_V1")[len(container.path) :], f"VLLM_USE_V1=0: {why}")


def _memory_full(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        share = engine.arguments.values.get("gpu-memory-utilization")
        if isinstance(share, (int, float)) and share > _FULL and not engine.eager:
            yield engine.problem(
                f"--gpu-memory-utilization {share} leaves no room for CUDA graphs and other libraries", "gpu-memory-utilization"
            )


def _login_first(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        for container in (*pod.inits, *pod.containers):
            script = container.script
            if _LOGIN.search(script) and (_STRICT.search(script) or re.search(r"login[^\n;]*&&", script)):
                field = "command" if _LOGIN.search("\n".join(map(str, items(container.body, "command")))) else "args"
                yield container.problem((field,), "logs in to Hugging Face first and ends if that fails, also for an open model")


def _unresolved(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        if not engine.direct or container.has_foreign_env:
            continue
        for field in ("command", "args"):
            for index, word in enumerate(items(container.body, field)):
                missing = [name for name in _UNRESOLVED.findall(str(word).replace("$$", "")) if name not in container.env]
                if missing:
                    yield container.problem(
                        (field, index), f"$({missing[0]}) names no variable of the container, and stays as it is"
                    )


def _service_link(manifests: Manifests) -> Iterator[Problem]:
    for service in manifests.of("Service"):
        if service.name != "vllm" or text(service.body, "spec", "clusterIP") == "None":
            continue
        for engine in manifests.engines:
            pod = engine.container.pod
            hit = engine.name == "vllm" and pod.object.namespace == service.namespace and "VLLM_PORT" not in engine.container.env
            if hit and at(pod.spec, "enableServiceLinks") is not False:
                yield engine.container.pod.problem(
                    (), f"{service.label} puts VLLM_PORT=tcp://... into this pod, and vLLM ends on it"
                )


def _remote_code(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        local = engine.model.startswith("/") or engine.remote_model or not engine.model
        trusts = engine.arguments.values.get("trust-remote-code") is True
        if trusts and not local and not (engine.given("revision") or engine.given("code-revision")):
            yield engine.problem(
                "--trust-remote-code without --revision runs whatever the model's repository holds at that moment",
                "trust-remote-code",
            )


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP030",
        "More devices wanted than given",
        "error",
        "The engine takes tensor x pipeline x data parallel devices, and ends when it sees fewer.",
        "Ask for as many GPUs as the product, or lower --tensor-parallel-size; glowplug plan finds the least that fits.",
        ("A16", "B02"),
        _too_few_gpus,
    ),
    Rule(
        "GP031",
        "Idle GPUs",
        "warning",
        "The container holds more GPUs than its engine uses.",
        "Ask for fewer, or raise --tensor-parallel-size or --data-parallel-size.",
        ("A16",),
        _idle_gpus,
    ),
    Rule(
        "GP032",
        "Image without a fixed tag",
        "warning",
        "latest moves: two nodes may run two versions of the engine, each compiling for itself, and nobody can say which one a"
        " fault is of.",
        "Name a version, such as vllm/vllm-openai:v0.21.0, or a digest.",
        ("A17", "B13"),
        _loose_tag,
    ),
    Rule(
        "GP033",
        "Deprecated entry point of vLLM",
        "info",
        "python3 -m vllm.entrypoints.openai.api_server still works, and is deprecated in favour of vllm serve.",
        "Write vllm serve MODEL.",
        ("A17", "https://github.com/vllm-project/aibrix/pull/1960"),
        _deprecated_entry,
    ),
    Rule(
        "GP034",
        "Engine that listens on loopback only",
        "error",
        "Probes and Services come from outside the pod's loopback: the pod is never ready.",
        "Write --host=0.0.0.0, or leave the option out.",
        ("A67",),
        _loopback,
    ),
    Rule(
        "GP035",
        "vLLM's V0 engine asked for",
        "warning",
        "V0 was taken out of vLLM by 0.12, and the streamer's distributed mode needs V1.",
        "Remove VLLM_USE_V1.",
        ("A15", "X05"),
        _v0,
    ),
    Rule(
        "GP036",
        "GPU memory filled to the brim",
        "warning",
        "The capture of CUDA graphs and other libraries take memory beside what this share counts; the start ends out of memory,"
        " on some nodes and not on others.",
        "Keep it at 0.95 or below.",
        ("A26",),
        _memory_full,
    ),
    Rule(
        "GP037",
        "Log-in to Hugging Face that can end the start",
        "warning",
        "An expired token makes the log-in fail, and with set -e or && the container with it, although an open model needs no"
        " token.",
        "Set HF_TOKEN from a Secret (optional: true) and log in nowhere.",
        ("B23",),
        _login_first,
    ),
    Rule(
        "GP038",
        "Reference to a variable that is not there",
        "warning",
        "Kubernetes replaces $(NAME) by variables of the same container only; another name stays in the argument as it is written.",
        "Add the variable to env, or correct its name.",
        ("https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/",),
        _unresolved,
    ),
    Rule(
        "GP039",
        "Service called vllm beside vLLM",
        "error",
        "For a Service named vllm Kubernetes sets VLLM_PORT=tcp://... in every pod of the namespace. vLLM reads VLLM_PORT as a"
        " number and ends.",
        "Give the Service another name, or set enableServiceLinks: false in the pod.",
        ("https://docs.vllm.ai/en/latest/configuration/env_vars/",),
        _service_link,
    ),
    Rule(
        "GP040",
        "Remote code that is not pinned",
        "info",
        "--trust-remote-code runs Python from the model's repository, with the pod's rights.",
        "Pin --revision to a commit that somebody has read.",
        ("https://docs.vllm.ai/en/latest/cli/serve/",),
        _remote_code,
    ),
)
