"""Probes against the time that a start takes: what kills a pod while it loads, or sends it traffic too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, number, text, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.documents import Map
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import Container

_SHORT_S = 300
_USUAL_S = 600
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_PATHS_OF_OTHERS = frozenset(
    """
    / /healthz /ready /readyz /livez /healthcheck /api/health /health/ready /health/live /v1/health/ready /v1/health/live
    /v2/health/ready /v2/health/live
    """.split()  # noqa: SIM905
)
_CONTROLLED = ("InferenceService", "ServingRuntime", "ClusterServingRuntime", "LLMInferenceService", "RayCluster", "RayService")
"""Kinds whose controller adds probes, or serves by other ports."""


def budget_s(probe: Map) -> int:
    """Seconds from the container's start until a failing probe has its consequence."""
    period = max(1, number(probe, "periodSeconds", default=10))
    return number(probe, "initialDelaySeconds") + period * max(1, number(probe, "failureThreshold", default=3))


def _liveness_alone(container: Container) -> int | None:
    liveness = tree(container.body, "livenessProbe")
    return budget_s(liveness) if liveness and not tree(container.body, "startupProbe") else None


def _killed_while_loading(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        budget = _liveness_alone(container)
        if budget is not None and budget < _SHORT_S:
            yield container.problem(
                ("livenessProbe",), f"no startupProbe, and the livenessProbe kills it {budget} s after its start"
            )


def _killed_late(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        budget = _liveness_alone(container)
        if budget is not None and _SHORT_S <= budget < _USUAL_S:
            yield container.problem(("livenessProbe",), f"no startupProbe, and the livenessProbe allows a start of {budget} s")


def _short_start(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.serving:
        probe = tree(container.body, "startupProbe")
        if probe and budget_s(probe) < _SHORT_S:
            yield container.problem(("startupProbe",), f"allows a start of {budget_s(probe)} s, and then kills it")


def _traffic_while_loading(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        guarded = any(tree(container.body, name) for name in ("readinessProbe", "startupProbe"))
        if container in manifests.serving and not guarded and container.pod.kind not in _CONTROLLED and not _is_worker(container):
            yield container.problem((), "no readinessProbe and no startupProbe: traffic comes while it loads and compiles")


def _no_readiness(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        started = tree(container.body, "startupProbe") and not tree(container.body, "readinessProbe")
        if started and container in manifests.serving and container.pod.kind not in _CONTROLLED and not _is_worker(container):
            yield container.problem((), "no readinessProbe: once started, it gets traffic whatever happens to it")


def _is_worker(container: Container) -> bool:
    return container.pod.kind == "LeaderWorkerSet" and "workerTemplate" in container.path


def _wrong_port(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        elsewhere = {number(port, "containerPort") for other in container.pod.containers if other is not container
                     for port in items(other.body, "ports")}  # fmt: skip
        for name in _PROBES:
            for handler in ("httpGet", "tcpSocket"):
                written = at(container.body, name, handler, "port")
                if written is None or container.pod.kind in _CONTROLLED:
                    continue
                port = _port(container, written)
                if port is None:
                    yield container.problem(
                        (name, handler, "port"), f"the probe's port {text(written)[:40]} is no port of the container"
                    )
                elif engine.port and port != engine.port and port not in elsewhere:
                    yield container.problem((name, handler, "port"), f"probes port {port}, and the engine listens on {engine.port}")


def _port(container: Container, written: object) -> int | None:
    name = text(written)
    if name.isdecimal():
        return int(name[:9])
    for port in items(container.body, "ports"):
        if text(port, "name") == name:
            return number(port, "containerPort")
    return None


def _wrong_path(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        rooted = engine.given("root-path") or not engine.complete or len(engine.container.pod.containers) > 1
        for name in _PROBES:
            path = text(engine.container.body, name, "httpGet", "path")
            if engine.name == "vllm" and path in _PATHS_OF_OTHERS and not rooted:
                yield engine.container.problem((name, "httpGet", "path"), f"vLLM has no {path}; its answer is 404")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP101",
        "Liveness probe that kills the pod while it loads",
        "error",
        "Without a startupProbe the livenessProbe counts from the container's start. Weights, compilation and graph capture take"
        " minutes; the pod is killed in the middle, begins again, and never ends.",
        "Add a startupProbe on /health with periodSeconds x failureThreshold above the slowest cold start; glowplug plan computes"
        " it.",
        ("P01", "P02", "P03", "A65"),
        _killed_while_loading,
    ),
    Rule(
        "GP102",
        "Short start-up budget",
        "warning",
        "Less than five minutes for a cold start: a new node, an empty cache or a slow fetch are enough to be killed.",
        "Raise failureThreshold; 600 s are what serving stacks have come to, and large models need more.",
        ("P02", "P03", "P04", "P05", "A65"),
        _short_start,
    ),
    Rule(
        "GP103",
        "No probe that says when it is ready",
        "warning",
        "Without readinessProbe and startupProbe a pod is ready at once: requests reach an engine that is still compiling, and"
        " fail.",
        "Add a startupProbe and a readinessProbe on /health.",
        ("B21",),
        _traffic_while_loading,
    ),
    Rule(
        "GP104",
        "No readinessProbe after the start",
        "info",
        "The startupProbe keeps traffic away until the engine serves; later, an engine that hangs keeps getting requests.",
        "Add a readinessProbe on /health.",
        ("B21", "A65"),
        _no_readiness,
    ),
    Rule(
        "GP105",
        "Probe on another port than the engine's",
        "error",
        "The probe fails for ever: the pod is never ready, or is killed.",
        "Give probe, container port and --port one number.",
        ("B34", "A65"),
        _wrong_port,
    ),
    Rule(
        "GP106",
        "Probe on a path that vLLM does not have",
        "error",
        "vLLM answers /health, /ping, /v1/models, /version, /load and /metrics. Anything else is 404, and a probe takes that for"
        " a failure.",
        "Probe /health.",
        ("A65",),
        _wrong_path,
    ),
    Rule(
        "GP112",
        "Liveness probe in place of a startup probe",
        "warning",
        "A long initialDelaySeconds guards the start, and either kills a slow one or notices a hung engine late. Large models"
        " need ten minutes and more.",
        "Add a startupProbe for the start, and let the livenessProbe begin without delay.",
        ("P01", "P04", "P05"),
        _killed_late,
    ),
)
