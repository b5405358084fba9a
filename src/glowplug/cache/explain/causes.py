"""The causes behind the differences of two envelopes, ranked: what is likely an accident first.

One cause often shows in many components: another torch brings another Triton and other CUDA libraries, another instance type
brings another processor and driver. Such followers are kept with the cause that they follow from, so that the list is as long as
there are things to do. Pure: it compares two trees.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from glowplug.cache.envelope import Difference, canonical_json, compare
from glowplug.cache.explain import kinds
from glowplug.cache.explain.classify import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.cache.envelope import Envelope, Json
    from glowplug.cache.explain.kinds import Kind
    from glowplug.cache.explain.known import Known

_NEAR = 4.0
_WORDS = "arguments.words"
_DECAY = 0.5  # the fourth difference of a kind puts little more between two deployments than the third


@dataclass(frozen=True, slots=True)
class Cause:
    """Something in which two starts differ.

    Attributes:
        path: of the component, dotted, such as ``environment.VLLM_IMAGE_TAG``.
        ours: this side's value as compact JSON; None where it lacks it.
        theirs: the other side's.
        kind: what sort of difference it is, for programs.
        likelihood: that nobody meant it, from 0 to 1. An order, not a measurement.
        distance: how much further apart it puts two deployments.
        what: what it is, as a clause.
        fix: what to do, as one line.
        followers: differences that follow from this one.
    """

    path: str
    ours: str | None
    theirs: str | None
    kind: str
    likelihood: float
    distance: float
    what: str
    fix: str
    followers: tuple[Difference, ...] = field(default=())

    @property
    def in_words(self) -> str:
        """``likely an accident``, ``perhaps not meant`` or ``likely meant``."""
        return kinds.likelihood_in_words(self.likelihood)


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Differences that come together: the first of the roots that differs is the cause, the other members follow from it."""

    roots: tuple[re.Pattern[str], ...]
    members: re.Pattern[str]


def _bundle(members: str, *roots: str) -> _Bundle:
    return _Bundle(tuple(re.compile(root) for root in roots), re.compile(members))


_BUNDLES = (
    _bundle(r"accelerator(\..+)?|cpu(\..+)?", r"accelerator", r"accelerator\.(kind|models(\..+)?|count)"),
    _bundle(r"cpu\.(?!threads).+", r"cpu\.machine", r"cpu\.isa"),
    _bundle(r"engine\.(record|edited|distribution|version)|packages(\..+)?", r"engine\.version"),
    _bundle(r"python\..+|paths\.(?!cache$).+", r"python\.version", r"python\.(implementation|abi)"),
    _bundle(
        r"packages\.(torch|triton.*|pytorch-triton.*|nvidia-.*|builds\..+)",
        r"packages\.torch", r"packages\.builds\.torch\..+", r"packages\.triton",
    ),
    _bundle(r"engine\.(record|edited|distribution)", r"engine\.(record|edited)"),
    _bundle(r"paths\.(?!cache$).+", r"paths\.(?!cache$).+"),
    _bundle(r"parallelism\..+", r"parallelism\.(tensor|pipeline|data|expert)", r"parallelism\..+"),
    _bundle(r"arguments\.(script|program|content|module|words)", r"arguments\.(script|program|module)"),
    _bundle(
        r"model\.(?!(draft|config)\.|path$|revision$).+", r"model\.reference", r"model\.commit", r"model\.weights\..+", r"model\..+"
    ),
    _bundle(r"model\.draft\.(?!path$).+", r"model\.draft\.reference", r"model\.draft\..+"),
)  # fmt: skip
_SAME_CONTENT = re.compile(r"model\.(files|weights)\b")


def causes(ours: Envelope, theirs: Envelope, known: Mapping[str, Known] | None = None) -> list[Cause]:
    """Why two envelopes are not equal, the likeliest accident first; empty if and only if they are.

    Args:
        ours: of the start that missed.
        theirs: of one that has a cache.
        known: what the engine's adapter knows, by path.
    """
    left = [part for item in compare(ours, theirs) for part in _parts(item)]
    found = []
    for bundle in _BUNDLES:
        root = next((item for pattern in bundle.roots for item in left if pattern.fullmatch(item.path)), None)
        if root is None:
            continue
        members = [item for item in left if bundle.members.fullmatch(item.path)]
        taken = {item.path for item in members}
        left = [item for item in left if item.path not in taken]
        found.append(_cause(root, [item for item in members if item is not root]))
    found += [_cause(item, []) for item in left]
    found = [_same_model(cause, ours, theirs) for cause in found]
    found = [_with_knowledge(_whole(cause, ours, theirs), known or {}) for cause in found]
    return sorted(found, key=lambda cause: (-cause.likelihood, cause.path))


def distance(found: Sequence[Cause]) -> float:
    """How far apart two deployments are: 0 if nothing differs. Many differences of one kind count less than as many kinds."""
    total, seen = 0.0, dict[str, int]()
    for cause in sorted(found, key=lambda cause: -cause.distance):
        total += cause.distance * _DECAY ** min(seen.get(cause.kind, 0), 8)
        seen[cause.kind] = seen.get(cause.kind, 0) + 1
    return total


def is_near(found: Sequence[Cause]) -> bool:
    """Whether two starts are of what is meant to be one deployment, so that a start of the one could expect the other's cache."""
    return distance(found) <= _NEAR


def _cause(root: Difference, followers: Sequence[Difference]) -> Cause:
    kind = kind_of(root.path, _parsed(root.ours), _parsed(root.theirs))
    if kind in {kinds.MODEL_FOLDER, kinds.BUCKET} and any(_SAME_CONTENT.match(item.path) for item in followers):
        kind = kinds.CONTENT
    return _of_kind(root, kind, followers)


def _same_model(cause: Cause, ours: Envelope, theirs: Envelope) -> Cause:
    """Two folders of other names that hold the same files are one model."""
    group = cause.path.removesuffix(".reference")
    here, there = ([_component(side, f"{group}.{part}") for part in ("files", "weights")] for side in (ours, theirs))
    if cause.kind != kinds.MODEL.name or not cause.path.endswith(".reference") or here != there or None in here:
        return cause
    kind = kinds.MODEL_FOLDER
    return replace(cause, kind=kind.name, likelihood=kind.likelihood, distance=kind.distance, what=kind.what, fix=kind.fix)


def _component(envelope: Envelope, path: str) -> Json:
    value: Json = dict(envelope.components)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _of_kind(root: Difference, kind: Kind, followers: Sequence[Difference]) -> Cause:
    return Cause(
        root.path, root.ours, root.theirs, kind.name, kind.likelihood, kind.distance, kind.what, kind.fix, tuple(followers)
    )  # fmt: skip


def _parts(difference: Difference) -> list[Difference]:
    """Of a command's words those that differ, each under the name of its option."""
    left, right = _parsed(difference.ours), _parsed(difference.theirs)
    if difference.path != _WORDS or not isinstance(left, list) or not isinstance(right, list):
        return [difference]
    if len(left) != len(right):
        return _options_apart(left, right) or [difference]
    parts = {}
    for number, pair in enumerate(zip(left, right, strict=True)):
        if pair[0] == pair[1]:
            continue
        before = str(left[number - 1]) if number else ""
        name = before if before.startswith("-") and before == right[number - 1] else str(number)
        values: list[Json] = list(pair)
        here, there = (str(value).partition("=") for value in pair)
        if here[0] == there[0] and here[1] and there[1]:
            name, values = here[0], [here[2], there[2]]
        parts[f"{_WORDS}.{name}"] = Difference(f"{_WORDS}.{name}", *(canonical_json(value).decode() for value in values))
    return list(parts.values())


def _options_apart(left: list[Json], right: list[Json]) -> list[Difference]:
    """The options that only one of two commands has, or that have another value; nothing where only the order differs."""
    ours, theirs = _options(left), _options(right)
    return [
        Difference(f"{_WORDS}.{name}", *(canonical_json(side[name]).decode() if name in side else None for side in (ours, theirs)))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def _options(words: list[Json]) -> dict[str, Json]:
    """Words by option, as far as that can be told without knowing the program: what follows an option is its value."""
    found: dict[str, Json] = {}
    place, texts = 0, [str(word) for word in words]
    while texts:
        word = texts.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            found[str(place)], place = word, place + 1
        elif equals:
            found[name] = value
        else:
            found[name] = texts.pop(0) if texts and not texts[0].startswith("-") else ""
    return found


def _whole(cause: Cause, ours: Envelope, theirs: Envelope) -> Cause:
    """Of accelerators the names and numbers on both sides, instead of one name that only one side has."""
    if not cause.path.startswith("accelerator.models"):
        return cause
    values = [_models(envelope) for envelope in (ours, theirs)]
    followers = tuple(item for item in cause.followers if not item.path.startswith(("accelerator.models", "accelerator.count")))
    return replace(cause, path="accelerator.models", ours=values[0], theirs=values[1], followers=followers)


def _models(envelope: Envelope) -> str | None:
    accelerator = envelope.components.get("accelerator")
    models = accelerator.get("models") if isinstance(accelerator, dict) else None
    if not isinstance(models, dict) or not models:
        return None
    return json.dumps(", ".join(f"{number} x {name}" for name, number in sorted(models.items())), ensure_ascii=False)


def _with_knowledge(cause: Cause, known: Mapping[str, Known]) -> Cause:
    fact = known.get(cause.path)
    if fact is None:
        return cause
    return replace(cause, what=fact.what, fix=fact.fix, likelihood=fact.likelihood)


def _parsed(text: str | None) -> Json:
    if text is None:
        return None
    value: Json = json.loads(text)
    return value
