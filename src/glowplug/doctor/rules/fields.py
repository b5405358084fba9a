"""Fields that are not what their author sees: a key that stands twice, and values of a type that the API server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.documents import Map, Seq
from glowplug.doctor.objects import at, items, tree
from glowplug.doctor.pods import pod_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object, Path

_MAPPING, _TEXTS, _MAPPINGS, _TEXT_BY_NAME = "mapping", "list of texts", "list of mappings", "mapping of texts"
_POD = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "tolerations", "imagePullSecrets"), _MAPPINGS),
    **dict.fromkeys(("affinity", "securityContext"), _MAPPING),
    "nodeSelector": _TEXT_BY_NAME,
}
_CONTAINER = {
    **dict.fromkeys(("command", "args"), _TEXTS),
    **dict.fromkeys(("env", "envFrom", "ports", "volumeMounts"), _MAPPINGS),
    **dict.fromkeys(("resources", "securityContext", "lifecycle", "startupProbe", "livenessProbe", "readinessProbe"), _MAPPING),
}
_METADATA = dict.fromkeys(("labels", "annotations"), _TEXT_BY_NAME)


def _twice(manifests: Manifests) -> Iterator[Problem]:
    for each in manifests.objects:
        yield from _twice_below(each, each.body, ())


def _twice_below(each: Object, value: Map | Seq, path: Path) -> Iterator[Problem]:
    if not value.repeats:
        return
    if isinstance(value, Map):
        for key, line in value.lost:
            yield each.problem((*path, key), f"{key[:60]} stands twice here, and what line {line} says is lost")
    for step, child in value.items() if isinstance(value, Map) else enumerate(value):
        if isinstance(child, (Map, Seq)):
            yield from _twice_below(each, child, (*path, step))


def _other_type(manifests: Manifests) -> Iterator[Problem]:
    for each in manifests.objects:
        yield from _fields(each, ("metadata",), _METADATA)
        for spec, metadata in pod_places(each):
            broken = next((spec[:end] for end in range(1, len(spec) + 1) if not _may_be(at(each.body, *spec[:end]), Map)), None)
            if broken:
                yield each.problem(broken, f"{broken[-1]} is no {_MAPPING}")
                continue
            if metadata not in (("metadata",), spec):
                yield from _fields(each, metadata, _METADATA)
            yield from _pod(each, spec)


def _pod(each: Object, spec: Path) -> Iterator[Problem]:
    yield from _fields(each, spec, _POD)
    for kind in ("initContainers", "containers"):
        for index, body in enumerate(items(each.body, *spec, kind)):
            path = (*spec, kind, index)
            yield from _fields(each, path, _CONTAINER)
            for place, entry in enumerate(items(body, "env")):
                if not _may_be(at(entry, "value"), str):
                    name = at(entry, "name")
                    yield each.problem((*path, "env", place, "value"), f"the value of {name} is {_spelt(entry['value'])}, no text")


def _fields(each: Object, path: Path, wanted: dict[str, str]) -> Iterator[Problem]:
    given = tree(each.body, *path)
    for name, kind in wanted.items():
        value = given.get(name)
        if not _may_be(value, Map if kind in (_MAPPING, _TEXT_BY_NAME) else Seq):
            yield each.problem((*path, name), f"{name} is no {kind}")
        elif isinstance(value, (Map, Seq)) and kind != _MAPPING:
            yield from _children(each, (*path, name), value, Map if kind == _MAPPINGS else str)


def _children(each: Object, path: Path, value: Map | Seq, kind: type) -> Iterator[Problem]:
    for step, child in value.items() if isinstance(value, Map) else enumerate(value):
        if not _may_be(child, kind):
            what = f"{step[:60]} in {path[-1]}" if isinstance(step, str) else f"item {step + 1} of {path[-1]}"
            yield each.problem((*path, step), f"{what} is {_spelt(child)}, no {'text' if kind is str else _MAPPING}")


def _may_be(value: object, kind: type) -> bool:
    return value is None or isinstance(value, kind)


def _spelt(value: object) -> str:
    if isinstance(value, (Map, Seq)):
        return "a mapping" if isinstance(value, Map) else "a list"
    told = str(value).lower() if isinstance(value, bool) else str(value)[:40]
    return f"the text {told!r}" if isinstance(value, str) else told


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP059",
        "Key that stands twice",
        "error",
        "YAML forbids it. Parsers that let it pass take the last one without a word, so that a second env or args further down"
        " takes the whole first one away.",
        "Make one of the two.",
        ("https://yaml.org/spec/1.2.2/#nodes",),
        _twice,
    ),
    Rule(
        "GP060",
        "Value of a type that is refused",
        "error",
        "The API server takes no number or truth value where a field is text, and no text where it is a list: 8000, true, yes and"
        " 1e3 without quotes are no text.",
        'Quote what is text ("8000"), and write command and args as lists of words.',
        ("https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/",),
        _other_type,
    ),
)
