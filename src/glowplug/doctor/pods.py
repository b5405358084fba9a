"""Pod templates and their containers, out of every kind that carries some: what the kubelet would start, as far as a file tells."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from glowplug.doctor.documents import Map
from glowplug.doctor.objects import at, items, number, text, tree
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.doctor.base import Problem
    from glowplug.doctor.objects import Object, Path

_TEMPLATE: Path = ("spec", "template")
_CARRIERS: Mapping[str, Path] = {
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Rollout"), _TEMPLATE),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Pod": (),
}
_BARE: Mapping[str, tuple[Path, ...]] = {
    "InferenceService": (("spec", "predictor"),),
    "LLMInferenceService": (("spec", "template"), ("spec", "worker")),
    "ServingRuntime": (("spec",),),
    "ClusterServingRuntime": (("spec",),),
}
"""Kinds of KServe: a pod's spec without a template around it."""
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
CHIPS = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice")
CORES = "aws.amazon.com/neuroncore"
_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")


class Mount(NamedTuple):
    """One ``volumeMounts`` entry."""

    path: str
    volume: str
    read_only: bool
    place: int
    per_pod: bool
    """Whether a ``subPathExpr`` gives each pod a folder of its own."""


@dataclass(frozen=True, eq=False)
class Container:
    """One container.

    Attributes:
        pod: whose.
        body: its values.
        path: from the object's root.
        is_init: of ``initContainers``.
    """

    pod: PodTemplate
    body: Map
    path: Path
    is_init: bool

    @property
    def name(self) -> str:
        """Its name; a KServe ``model`` without one is called so."""
        return text(self.body, "name") or str(self.path[-1])

    @property
    def image(self) -> str:
        """As given; may be empty."""
        return text(self.body, "image")

    @property
    def tag(self) -> str:
        """Of the image; empty if it has none, or a digest alone."""
        name = self.image.partition("@")[0].rpartition("/")[2]
        return name.partition(":")[2]

    @cached_property
    def env(self) -> Mapping[str, str | None]:
        """Its variables; None for a value that comes from elsewhere."""
        known: dict[str, str | None] = {}
        for entry in items(self.body, "env"):
            name = text(entry, "name")
            if "valueFrom" in tree(entry):
                known[name] = None
            elif name:
                known[name] = expand(text(entry, "value"), known)
        return known

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Command and arguments, ``$(NAME)`` replaced where the value is known."""
        given = (*items(self.body, "command"), *items(self.body, "args"))
        return tuple(expand("" if word is None else str(word), self.env) for word in given)

    @property
    def script(self) -> str:
        """All words in one text, to be searched."""
        return "\n".join(self.words)

    @property
    def has_foreign_env(self) -> bool:
        """Whether variables come that the file doesn't show."""
        return bool(items(self.body, "envFrom"))

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """Where volumes are mounted."""
        return tuple(
            Mount(
                posixpath.normpath(text(entry, "mountPath") or "/"), text(entry, "name"), at(entry, "readOnly") is True, index,
                bool(text(entry, "subPathExpr")),
            )
            for index, entry in enumerate(items(self.body, "volumeMounts"))
        )  # fmt: skip

    def mount_of(self, path: str) -> Mount | None:
        """The mount that a path lies on; None if it is the container's own layer."""
        path = posixpath.normpath(path)
        above = [each for each in self.mounts if path == each.path or path.startswith(each.path.rstrip("/") + "/")]
        return max(above, key=lambda each: len(each.path), default=None)

    def count(self, *resources: str) -> int:
        """How many of these devices it gets: its limits, or its requests where there are none."""
        for part in ("limits", "requests"):
            given = [quantity(text(self.body, "resources", part, name)) for name in resources]
            if any(given):
                return int(sum(amount or 0 for amount in given))
        return 0

    @cached_property
    def gpus(self) -> int:
        """Whole GPUs, and parts of one by MIG."""
        mig = [name for name in tree(self.body, "resources", "limits") if name.startswith("nvidia.com/mig-")]
        return self.count(*GPUS, *mig)

    @property
    def accelerated(self) -> bool:
        """Whether it asks for any accelerator."""
        return self.gpus > 0 or self.count(*CHIPS, CORES) > 0

    def resource(self, name: str, part: str = "limits") -> float | None:
        """A quantity of its resources; None if it isn't given."""
        return quantity(text(self.body, "resources", part, name))

    def env_path(self, name: str) -> Path:
        """The path of a variable; the last one counts where it is given twice."""
        found = [index for index, entry in enumerate(items(self.body, "env")) if text(entry, "name") == name]
        return (*self.path, "env", *found[-1:])

    def problem(self, path: Path, message: str) -> Problem:
        """Something wrong at a path from this container."""
        return self.pod.object.problem((*self.path, *path), f"container {self.name}: {message}")


@dataclass(frozen=True, eq=False)
class PodTemplate:
    """A pod as its carrier would make it.

    Attributes:
        object: the carrier.
        path: of the pod's spec.
        spec: its values.
        metadata: of the template.
    """

    object: Object
    path: Path
    spec: Map
    metadata: Map

    @property
    def labels(self) -> Map:
        """Of the pods."""
        return tree(self.metadata, "labels")

    @property
    def kind(self) -> str:
        """Of the carrier."""
        return self.object.kind

    @property
    def replicas(self) -> int:
        """That are asked for; 1 where the file doesn't say."""
        return number(self.object.body, "spec", "replicas", default=1)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Those that serve, init containers left out."""
        return tuple(self._containers())

    @cached_property
    def inits(self) -> tuple[Container, ...]:
        """Init containers."""
        return tuple(
            Container(self, body, (*self.path, "initContainers", index), is_init=True)
            for index, body in enumerate(items(self.spec, "initContainers"))
            if isinstance(body, Map)
        )

    @cached_property
    def volumes(self) -> Mapping[str, tuple[Map, int]]:
        """Volumes by name, with their place in the list."""
        return {
            text(body, "name"): (body, index) for index, body in enumerate(items(self.spec, "volumes")) if isinstance(body, Map)
        }

    @cached_property
    def accelerated(self) -> bool:
        """Whether any container asks for an accelerator."""
        return any(each.accelerated for each in self.containers)

    def problem(self, path: Path, message: str) -> Problem:
        """Something wrong at a path from this pod's spec."""
        return self.object.problem((*self.path, *path), message)

    def _containers(self) -> Iterator[Container]:
        for index, body in enumerate(items(self.spec, "containers")):
            if isinstance(body, Map):
                yield Container(self, body, (*self.path, "containers", index), is_init=False)
        model = at(self.spec, "model")
        if self.kind == "InferenceService" and isinstance(model, Map):
            yield Container(self, model, (*self.path, "model"), is_init=False)


def expand(value: str, known: Mapping[str, str | None]) -> str:
    """``$(NAME)`` replaced as the kubelet does it: unknown names stay, ``$$`` is a dollar."""

    def found(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        replacement = known.get(match[1])
        return match[0] if replacement is None else replacement

    return _REFERENCE.sub(found, value)


def pod_templates(carrier: Object) -> Iterator[PodTemplate]:
    """The pods that an object would make; none where its kind makes none."""
    for path, metadata in pod_places(carrier):
        spec = tree(carrier.body, *path)
        if spec:
            yield PodTemplate(carrier, path, spec, tree(carrier.body, *metadata))


def pod_places(carrier: Object) -> Iterator[tuple[Path, Path]]:
    """The paths of each pod's spec and of its metadata, whatever stands there; none where the kind makes no pods."""
    kind = carrier.kind
    if kind in _CARRIERS:
        base = _CARRIERS[kind]
        yield (*base, "spec"), (*base, "metadata")
    for path in _BARE.get(kind, ()):
        yield path, path
    if kind == "LeaderWorkerSet":
        for part in ("leaderTemplate", "workerTemplate"):
            base = ("spec", "leaderWorkerTemplate", part)
            yield (*base, "spec"), (*base, "metadata")
    if kind in ("RayCluster", "RayService"):
        cluster: Path = ("spec", "rayClusterConfig") if kind == "RayService" else ("spec",)
        groups: list[Path] = [(*cluster, "headGroupSpec")]
        groups += [(*cluster, "workerGroupSpecs", index) for index in range(len(items(carrier.body, *cluster, "workerGroupSpecs")))]
        for group in groups:
            yield (*group, "template", "spec"), (*group, "template", "metadata")
