"""Which of a checkpoint's files are loaded, from their names and the index alone.

As vLLM's own loaders choose (``filter_duplicate_safetensors_files``), and stricter where they would load nonsense: only files at
the top level; if there is an index, only those that it names; never a model twice because it lies there in two layouts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import BadCheckpoint, IncompatibleError
from glowplug.weights.checkpoint.small_files import WEIGHT_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glowplug.weights.base import Entry

INDEX_NAME = "model.safetensors.index.json"
CONSOLIDATED_INDEX_NAME = "consolidated.safetensors.index.json"

_SUFFIX = ".safetensors"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,})-of-(?P<total>\d{5,})\.safetensors")
_NUMBER = re.compile(r"([0-9]+)")


class Selection(NamedTuple):
    """Files by what is done with them."""

    files: tuple[Entry, ...]
    """To load, in order."""
    others: tuple[Entry, ...]
    """No weights."""
    ignored: tuple[tuple[str, str], ...]
    """Weights that are not loaded, and why."""


class Layout(NamedTuple):
    """Which of a checkpoint's layouts is loaded."""

    files: dict[str, Entry]
    """Candidates, by name."""
    index_file: Entry | None
    """The index that belongs to them."""
    ignored: dict[str, str]


def layout(entries: Iterable[Entry], *, consolidated: bool = False) -> Layout:
    """Choose between the layouts that lie side by side.

    Args:
        entries: all files of the checkpoint.
        consolidated: prefer Mistral's own layout (``consolidated*.safetensors``) where both are there; alone it is always used.
    """
    by_name = {entry.name: entry for entry in entries}
    top = {name: entry for name, entry in by_name.items() if name.endswith(_SUFFIX) and "/" not in name}
    ignored = {name: _why(name) for name in by_name if name.endswith(WEIGHT_SUFFIXES) and name not in top}
    mistral = {name: entry for name, entry in top.items() if name.startswith("consolidated")}
    adapters = {name: entry for name, entry in top.items() if name.startswith("adapter_")}
    usual = {name: entry for name, entry in top.items() if name not in mistral and name not in adapters}
    if mistral and (consolidated or not usual):
        ignored |= dict.fromkeys(usual, "the same weights in another layout; consolidated files are loaded")
        ignored |= dict.fromkeys(adapters, "an adapter, not the model")
        return Layout(mistral, by_name.get(CONSOLIDATED_INDEX_NAME), ignored)
    if usual:
        ignored |= dict.fromkeys(mistral, "the same weights in Mistral's layout")
        ignored |= dict.fromkeys(adapters, "an adapter, not the model")
        return Layout(usual, by_name.get(INDEX_NAME), ignored)
    return Layout(adapters, by_name.get(INDEX_NAME), ignored)


def select(
    entries: Iterable[Entry], chosen: Layout, weight_map: dict[str, str] | None, *, uri: str, index_name: str = ""
) -> Selection:
    """The files to load.

    Args:
        entries: all files of the checkpoint.
        chosen: from ``layout``.
        weight_map: of the index, tensor to file; None if there is no index.
        uri: for errors.
        index_name: the index's full name, for errors.

    Raises:
        BadCheckpoint: the index names a file that is not there, or a shard is missing.
        IncompatibleError: there is no safetensors file.
    """
    ignored = dict(chosen.ignored)
    files = dict(chosen.files)
    if weight_map is not None:
        named = set(weight_map.values())
        for name in sorted(named - files.keys()):
            raise BadCheckpoint(
                f"{index_name} names {name}, which is not there",
                object=index_name,
                hint="the copy is incomplete; copy the model again",
            )
        ignored |= dict.fromkeys(files.keys() - named, "not in the index")
        files = {name: entry for name, entry in files.items() if name in named}
    elif not uri.endswith(_SUFFIX):
        _check_shards(files, uri)
    if not files:
        raise IncompatibleError(
            f"{uri} has no safetensors files{_instead(chosen.ignored)}",
            object=uri,
            hint=_instead_hint(chosen.ignored, uri),
        )
    others = sorted(entry for entry in entries if not entry.name.endswith(WEIGHT_SUFFIXES))
    ordered = sorted(files.values(), key=lambda entry: natural(entry.name))
    return Selection(tuple(ordered), tuple(others), tuple(sorted(ignored.items())))


def natural(name: str) -> list[str | int]:
    """A sort key in which ``model-2`` comes before ``model-10``, as vLLM orders files."""
    return [int(part) if part[:1].isdigit() and part.isascii() else part for part in _NUMBER.split(name)]


def _check_shards(files: dict[str, Entry], uri: str) -> None:
    """Of ``model-00001-of-00004`` there must be four. Some writers count from 0, so only their number is compared."""
    found: dict[tuple[str, str], int] = {}
    for name in files:
        if match := _SHARD.fullmatch(name):
            key = match["stem"], match["total"]
            found[key] = found.get(key, 0) + 1
    for (stem, total), number in sorted(found.items()):
        if number < int(total):
            raise BadCheckpoint(
                f"{uri} has {number} of {int(total)} files {stem}-*-of-{total}{_SUFFIX}",
                object=uri,
                hint="the copy is incomplete; copy the model again",
            )


def _why(name: str) -> str:
    if not name.endswith(_SUFFIX):
        return "not safetensors"
    return "the same weights in their original layout" if name.startswith("original/") else "in a subfolder"


def _instead_hint(ignored: dict[str, str], uri: str) -> str:
    nested = next((name for name in sorted(ignored) if name.endswith(_SUFFIX)), "")
    if nested:
        return f"name the folder of one model, such as {uri.rstrip('/')}/{nested.rpartition('/')[0]}"
    if not ignored:
        return "name the folder of a model"
    if "://" in uri and not uri.lower().startswith("file:"):
        return (
            "convert the model to safetensors; or copy it to the node and name that folder, as other formats load from folders only"
        )
    return "convert the model to safetensors, or load it with the engine's own loader"


def _instead(ignored: dict[str, str]) -> str:
    """What it has: formats that somebody who forgot to convert would recognise."""
    nested = [name for name in ignored if name.endswith(_SUFFIX)]
    if nested:
        return f" at its top level, but {nested[0]}" + (f" and {len(nested) - 1} more" if len(nested) > 1 else "")
    formats = sorted({"." + name.rpartition(".")[2] for name in ignored})
    return f", only {', '.join(formats)}" if formats else ""
