"""From the world to the engine: Ingress, Service, port, and who may come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, number, text, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object, Path
    from glowplug.doctor.pods import PodTemplate

_READ_TIMEOUT = "nginx.ingress.kubernetes.io/proxy-read-timeout"
_CLASS = "kubernetes.io/ingress.class"


def _ports(pod: PodTemplate) -> dict[str, int]:
    """The pod's ports by name; those without one by their number."""
    return {
        text(port, "name") or text(port, "containerPort"): number(port, "containerPort")
        for container in pod.containers
        for port in items(container.body, "ports")
    }


def _wrong_target(manifests: Manifests) -> Iterator[Problem]:
    for service in manifests.of("Service"):
        for pod in manifests.selected(service):
            engine = manifests.engine(pod)
            if engine is None or pod.kind in ("RayCluster", "RayService"):
                continue
            ports = _ports(pod)
            for index, port in enumerate(items(service.body, "spec", "ports")):
                target = at(port, "targetPort")
                target = at(port, "port") if target is None else target
                path = ("spec", "ports", index)
                if isinstance(target, int):
                    if engine.port and target != engine.port and target not in ports.values():
                        yield service.problem(
                            path, f"sends to port {target}; the engine of {pod.object.label} listens on {engine.port}"
                        )
                elif text(target) not in ports and text(target):
                    yield service.problem(
                        path, f"sends to the port {text(target)[:40]}, and {pod.object.label} has none of this name"
                    )
                elif (
                    engine.port
                    and len(pod.containers) == 1
                    and len(ports) == 1
                    and ports.get(text(target), engine.port) != engine.port
                ):
                    what = f"{target} is port {ports[text(target)]} of {pod.object.label}, whose engine listens on {engine.port}"
                    yield service.problem(path, what)


def _nothing_selected(manifests: Manifests) -> Iterator[Problem]:
    for service in manifests.of("Service"):
        selector = tree(service.body, "spec", "selector")
        if not selector or manifests.selected(service):
            continue
        targets = {text(port, "targetPort") or text(port, "port") for port in items(service.body, "spec", "ports")}
        for engine in manifests.engines:
            pod = engine.container.pod
            meant = bool(engine.port) and (str(engine.port) in targets or bool(targets & set(_ports(pod))))
            near = pod.object.namespace == service.namespace and set(selector) <= set(pod.labels) and meant
            if near and pod.object.file == service.file:
                wrong = next(name for name, value in selector.items() if pod.labels.get(name) != value)
                yield service.problem(("spec", "selector", wrong), f"selects no pod; {pod.object.label} has another {wrong[:60]}")
                break


def _backends(ingress: Object) -> Iterator[tuple[Path, object]]:
    yield ("spec", "defaultBackend", "service"), at(ingress.body, "spec", "defaultBackend", "service")
    for rule in range(len(items(ingress.body, "spec", "rules"))):
        for index in range(len(items(ingress.body, "spec", "rules", rule, "http", "paths"))):
            path: Path = ("spec", "rules", rule, "http", "paths", index, "backend", "service")
            yield path, at(ingress.body, *path)


def _wrong_backend(manifests: Manifests) -> Iterator[Problem]:
    for ingress in manifests.of("Ingress"):
        for path, backend in _backends(ingress):
            service = manifests.find("Service", text(backend, "name"), ingress.namespace)
            if service is None:
                continue
            ports = items(service.body, "spec", "ports")
            wanted, name = at(backend, "port", "number"), text(backend, "port", "name")
            there = (
                wanted in [at(port, "port") for port in ports]
                if wanted is not None
                else name in [text(port, "name") for port in ports]
            )
            if not there and (wanted is not None or name):
                has = ", ".join(text(port, "port") for port in ports)
                yield ingress.problem(
                    (*path, "port"), f"sends to port {wanted or name} of {service.label}, which has {has or 'none'}"
                )


def _open_to_world(manifests: Manifests) -> Iterator[Problem]:
    for service in manifests.of("Service"):
        annotations = tree(service.body, "metadata", "annotations")
        inside = any("internal" in f"{name}={value}".lower() for name, value in annotations.items())
        bounded = bool(items(service.body, "spec", "loadBalancerSourceRanges")) or inside
        if text(service.body, "spec", "type") != "LoadBalancer" or bounded:
            continue
        for pod in manifests.selected(service):
            engine = manifests.engine(pod)
            if engine is None or engine.name != "vllm" or not engine.complete or engine.container.has_foreign_env:
                continue
            if not engine.given("api-key") and "VLLM_API_KEY" not in engine.container.env:
                yield service.problem(("spec", "type"), f"opens {pod.object.label} to the internet, and it asks for no key")


def _short_answers(manifests: Manifests) -> Iterator[Problem]:
    for ingress in manifests.of("Ingress"):
        annotations = tree(ingress.body, "metadata", "annotations")
        nginx = "nginx" in (text(ingress.body, "spec", "ingressClassName"), text(annotations, _CLASS))
        if not nginx or _READ_TIMEOUT in annotations:
            continue
        for _, backend in _backends(ingress):
            service = manifests.find("Service", text(backend, "name"), ingress.namespace)
            if service is not None and any(manifests.engine(pod) is not None for pod in manifests.selected(service)):
                yield ingress.problem(
                    ("metadata", "annotations"), "nginx ends an answer after 60 s without a byte: no proxy-read-timeout"
                )
                break


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP610",
        "Service that sends to another port than the engine's",
        "error",
        "Requests end in a refused connection, although the pods are ready. vLLM listens on 8000 unless --port says otherwise.",
        "Give targetPort, container port and --port one number.",
        ("B34",),
        _wrong_target,
    ),
    Rule(
        "GP611",
        "Service that selects no pod",
        "warning",
        "It has no endpoints: every request fails at once.",
        "Make the selector a part of the pod template's labels.",
        ("B34",),
        _nothing_selected,
    ),
    Rule(
        "GP612",
        "Ingress to a port that its Service does not have",
        "error",
        "The ingress controller answers 503.",
        "Name a port of the Service.",
        ("B34",),
        _wrong_backend,
    ),
    Rule(
        "GP613",
        "Engine open to the internet",
        "warning",
        "A Service of type LoadBalancer gets a public address on most clouds, and vLLM without --api-key serves whoever comes.",
        "Set loadBalancerSourceRanges or an internal scheme, and VLLM_API_KEY from a Secret.",
        ("B28", "B34"),
        _open_to_world,
    ),
    Rule(
        "GP614",
        "Ingress that ends long answers",
        "info",
        "nginx waits 60 s for a byte. An answer that is not streamed, or one that queues for long, takes more.",
        f'Set {_READ_TIMEOUT}: "600".',
        ("B34", "https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/annotations/"),
        _short_answers,
    ),
)
