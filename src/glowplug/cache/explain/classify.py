"""Which kind of difference it is, by the component's path and by the shape of both values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.cache.explain import kinds, shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glowplug.cache.envelope import Json
    from glowplug.cache.explain.kinds import Kind

# The envelope's groups but for those whose names are the engine's or the user's own. The first pattern that matches decides.
_BY_PATH = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"paths\.cache", kinds.CACHE_FOLDER),
        (r"paths\..+", kinds.INSTALL_FOLDER),
        (r"engine\.name", kinds.ENGINE),
        (r"(engine|packages\.builds\.[^.]+)\.edited", kinds.EDITED),
        (r"engine\.record|packages\.builds\..+", kinds.REBUILT),
        (r"engine\.version", kinds.VERSION),
        (r"engine\..+", kinds.VERSION),
        (r"python\..+", kinds.PYTHON),
        (r"accelerator\.driver", kinds.DRIVER),
        (r"accelerator(\..+)?", kinds.ACCELERATOR),
        (r"cpu\.threads", kinds.THREADS),
        (r"cpu(\..+)?", kinds.PROCESSOR),
        (r"parallelism(\..+)?", kinds.PARALLELISM),
        (r"model(\.draft|\.config)?\.path", kinds.HOME),
        (r"model(\.draft|\.config)?\.revision", kinds.REVISION),
        (r"arguments\.(script|program|content|module|words)", kinds.PROGRAM),
    )
)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_PORT_WORDS = frozenset(("port", "ports"))
_ORDINAL_WORDS = frozenset(("rank", "ranks", "index", "indices", "ordinal", "id", "ids", "shard", "replica"))
_HOST_WORDS = frozenset(("host", "hostname", "hosts", "addr", "address", "node", "nodes", "pod", "ip", "ips"))
_BUILD_WORDS = frozenset(("tag", "image", "build", "commit", "pipeline", "sha", "digest", "release"))
_NO_BUILD_WORDS = frozenset(("type", "mode", "flags"))
_THREAD_WORDS = frozenset(("threads", "cpus", "cores"))


def kind_of(path: str, ours: Json, theirs: Json) -> Kind:
    """The kind of one difference.

    Args:
        path: of the component, dotted.
        ours: this side's value; None where it lacks it.
        theirs: the other side's.
    """
    for pattern, kind in _BY_PATH:
        if pattern.fullmatch(path):
            return kind
    group, _, name = path.partition(".")
    match group:
        case "packages":
            return _package(ours, theirs)
        case "model":
            return _model(name.rpartition(".")[2], ours, theirs)
        case "environment":
            return _value(name, ours, theirs) or (kinds.SETTING if None not in (ours, theirs) else kinds.SETTING_PRESENCE)
        case "arguments":
            return _value(name, ours, theirs) or kinds.ARGUMENT
        case _:
            return kinds.OTHER


def _package(ours: Json, theirs: Json) -> Kind:
    """A patch version where the first two numbers are the same."""
    numbers = [_VERSION.match(value) if isinstance(value, str) else None for value in (ours, theirs)]
    if all(numbers) and numbers[0] and numbers[1] and numbers[0].groups() == numbers[1].groups():
        return kinds.PATCH
    return kinds.VERSION


def _model(name: str, ours: Json, theirs: Json) -> Kind:
    if name == "commit":
        return kinds.UNKNOWN_COMMIT if ours is None or theirs is None else kinds.COMMIT
    if name != "reference":
        return kinds.CONTENT
    if not isinstance(ours, str) or not isinstance(theirs, str) or shapes.last_part(ours) != shapes.last_part(theirs):
        return kinds.MODEL
    if shapes.is_url(ours) and shapes.is_url(theirs):
        return kinds.BUCKET
    return kinds.MODEL_FOLDER if shapes.is_path(ours) and shapes.is_path(theirs) else kinds.MODEL


def _value(name: str, ours: Json, theirs: Json) -> Kind | None:  # noqa: PLR0911  one return a shape
    """By the shape of both values and the words of the name; None where they tell nothing."""
    values = [value for value in (ours, theirs) if value is not None]
    words = shapes.words_of(name)
    if any(map(shapes.has_address, values)):
        return kinds.ADDRESS
    if words & _PORT_WORDS and all(map(shapes.is_number, values)):
        return kinds.PORT
    if any(map(shapes.is_uuid, values)):
        return kinds.IDENTITY
    if words & _ORDINAL_WORDS and all(map(shapes.are_numbers, values)):
        return kinds.ORDINAL
    if words & _BUILD_WORDS and not words & _NO_BUILD_WORDS:
        return kinds.BUILD
    if any(map(shapes.is_url, values)):
        return _url(values)
    if values and all(map(shapes.is_path, values)):
        return _path(values)
    if any(map(shapes.is_host, values)) or (words & _HOST_WORDS and all(isinstance(value, str) for value in values)):
        return kinds.POD if any(map(shapes.pod_owner, values)) else kinds.HOST
    owners = {shapes.pod_owner(value) for value in values}
    if len(values) == 2 and len(owners) == 1 and None not in owners:
        return kinds.POD
    return kinds.THREADS if words & _THREAD_WORDS and all(map(shapes.are_numbers, values)) else None


def _url(values: Sequence[Json]) -> Kind:
    names = {shapes.last_part(value) for value in values if isinstance(value, str)}
    return kinds.BUCKET if len(values) == 2 and len(names) == 1 else kinds.URL


def _path(values: Sequence[Json]) -> Kind:
    homes = {shapes.home_of(value) for value in values}
    return kinds.HOME if len(values) == 2 and len(homes) == 2 else kinds.PATH
