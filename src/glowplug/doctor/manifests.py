"""All that was given, as rules look at it: objects, the pods that they would make, and the engines in those."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from glowplug.doctor.objects import text, tree
from glowplug.doctor.pods import pod_templates
from glowplug.doctor.serving import engine_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glowplug.doctor.documents import Map
    from glowplug.doctor.objects import Object
    from glowplug.doctor.pods import Container, PodTemplate
    from glowplug.doctor.serving import Engine


class Manifests:
    """What a rule looks at. Look-ups are across files: who gives three files means one application."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.objects = tuple(objects)
        self._by_kind: dict[str, list[Object]] = {}
        self._by_name: dict[tuple[str, str, str], Object] = {}
        for each in objects:
            self._by_kind.setdefault(each.kind, []).append(each)
            self._by_name.setdefault((each.kind, each.namespace, each.name), each)

    def of(self, *kinds: str) -> Iterator[Object]:
        """All objects of these kinds."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object of this kind and name; None if it was not given."""
        return self._by_name.get((kind, namespace, name))

    @cached_property
    def pods(self) -> tuple[PodTemplate, ...]:
        """Every pod template."""
        return tuple(template for each in self.objects if each.kind for template in pod_templates(each))

    @cached_property
    def accelerated(self) -> tuple[PodTemplate, ...]:
        """Pods that ask for an accelerator."""
        return tuple(each for each in self.pods if each.accelerated)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Containers of all pods, init containers left out."""
        return tuple(container for pod in self.pods for container in pod.containers)

    @cached_property
    def engines(self) -> tuple[Engine, ...]:
        """Engines in them."""
        return tuple(engine for each in self.containers if (engine := engine_of(each)) is not None)

    @cached_property
    def serving(self) -> tuple[Container, ...]:
        """Containers that hold an accelerator for as long as they run, or an engine. Jobs end, and are not among them."""
        engines = {engine.container for engine in self.engines}
        lasting = (each for each in self.containers if each.pod.kind not in ("Job", "CronJob"))
        return tuple(each for each in lasting if each.accelerated or each in engines)

    def engine(self, pod: PodTemplate) -> Engine | None:
        """The first engine of a pod."""
        return self._engines.get(pod)

    @cached_property
    def _engines(self) -> Mapping[PodTemplate, Engine]:
        return {engine.container.pod: engine for engine in reversed(self.engines)}

    def selected(self, service: Object) -> list[PodTemplate]:
        """The pods that a Service or the like sends to, or an empty list."""
        selector = tree(service.body, "spec", "selector")
        selector = tree(selector, "matchLabels") or selector
        if not selector or any(not isinstance(value, str) for value in selector.values()):
            return []
        return [pod for pod in self.pods if pod.object.namespace == service.namespace and matches(selector, pod.labels)]

    def target(self, scaler: Object) -> Object | None:
        """What an autoscaler scales; None if it was not given."""
        reference = tree(scaler.body, "spec", "scaleTargetRef")
        kind = text(reference, "kind") or "Deployment"
        return self.find(kind, text(reference, "name"), scaler.namespace)

    def template(self, carrier: Object) -> PodTemplate | None:
        """The first pod template of an object."""
        return self._templates.get(carrier)

    @cached_property
    def _templates(self) -> Mapping[Object, PodTemplate]:
        return {pod.object: pod for pod in reversed(self.pods)}


def matches(selector: Map, labels: Map) -> bool:
    """Whether labels have all that a selector names."""
    return all(text(labels, name) == text(selector, name) and name in labels for name in selector)
