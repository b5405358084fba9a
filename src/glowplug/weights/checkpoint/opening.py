"""A checkpoint, known from its listing, its index and the headers of its files. No weight is read for it.

Costs one listing, one read of the index, and one read of each file's first 256 KiB (a second one where the header is longer), by up
to 32 threads at once.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import BadCheckpoint
from glowplug.units import KIB
from glowplug.weights.base import Checkpoint, WeightFile
from glowplug.weights.checkpoint.header import LENGTH_BYTES, data_start, parse_header
from glowplug.weights.checkpoint.selection import layout, select
from glowplug.weights.checkpoint.weight_map import read_weight_map
from glowplug.weights.fetch.crew import each
from glowplug.weights.sources.open import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.weights.base import Entry, Source, TensorInfo

_FIRST_READ_BYTES = 256 * KIB
_THREADS = 32


class _Header(NamedTuple):
    file: WeightFile
    tensors: tuple[TensorInfo, ...]
    metadata: tuple[tuple[str, str], ...]


def open(uri: str, *, env: Mapping[str, str] | None = None, consolidated: bool = False) -> Checkpoint:  # noqa: A001  weights.open
    """What a checkpoint holds. Blocks for a few round trips; reads no weights.

    Args:
        uri: ``s3://bucket/prefix``, ``http(s)://...``, ``file:///...`` or a path; of a folder, or of one file.
        env: the environment: credentials, endpoints. None: this process's.
        consolidated: prefer Mistral's own layout where a checkpoint has both.

    Raises:
        UsageError: the URI can't be.
        RemoteError: the store did not deliver.
        BadCheckpoint: a header or the index is wrong.
        IncompatibleError: there are no safetensors files.
    """
    source = open_source(uri, env=env)
    try:
        return open_checkpoint(source, consolidated=consolidated)
    finally:
        source.close()


def open_checkpoint(source: Source, *, consolidated: bool = False) -> Checkpoint:
    """The same from a source that is open already, and stays open."""
    entries = source.entries()
    chosen = layout(entries, consolidated=consolidated)
    weight_map, index_name = None, ""
    if chosen.index_file is not None:
        index_name = source.name_of(chosen.index_file)
        weight_map = read_weight_map(source, chosen.index_file)
    selection = select(entries, chosen, weight_map, uri=source.uri, index_name=index_name)
    headers = _headers(source, selection.files)
    files = tuple(header.file for header in headers)
    homes = _homes(source, headers)
    if weight_map is not None:
        _check_index(weight_map, homes, files, index_name)
    metadata: dict[str, str] = {}
    for header in reversed(headers):
        metadata |= dict(header.metadata)
    return Checkpoint(
        uri=source.uri,
        files=files,
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        others=selection.others,
        ignored=selection.ignored,
        metadata=tuple(sorted(metadata.items())),
    )


def _headers(source: Source, files: Sequence[Entry]) -> list[_Header]:
    if len(files) == 1:
        return [_header(source, files[0], 0)]
    return each(lambda index: _header(source, files[index], index), range(len(files)), threads=_THREADS, name="glowplug-headers")


def _header(source: Source, entry: Entry, index: int) -> _Header:
    name = source.name_of(entry)
    raw = source.read_small(entry, 0, min(entry.size_bytes, _FIRST_READ_BYTES)) if entry.size_bytes >= LENGTH_BYTES else b""
    start = data_start(raw, name=name, size_bytes=entry.size_bytes)
    if len(raw) < start:
        raw += source.read_small(entry, len(raw), start - len(raw))
    raw = raw[:start]
    tensors, metadata = parse_header(raw, name=name, file_index=index, size_bytes=entry.size_bytes)
    file = WeightFile(entry.name, entry.size_bytes, entry.etag, start, hashlib.sha256(raw).hexdigest())
    return _Header(file, tensors, metadata)


def _homes(source: Source, headers: Sequence[_Header]) -> dict[str, int]:
    """Each tensor's file, by index."""
    homes: dict[str, int] = {}
    for header in headers:
        for tensor in header.tensors:
            before = homes.setdefault(tensor.name, tensor.file)
            if before != tensor.file:
                name = source.name_of(header.file)
                raise BadCheckpoint(
                    f"{name}: tensor {tensor.name!r} is also in {headers[before].file.name}",
                    object=name,
                    hint="keep one copy of the model in this folder, or add an index that names the files to load",
                )
    return homes


def _check_index(weight_map: Mapping[str, str], homes: Mapping[str, int], files: Sequence[WeightFile], name: str) -> None:
    for tensor, file in weight_map.items():
        home = homes.get(tensor)
        if home is not None and files[home].name == file:
            continue
        where = f"which is in {files[home].name}" if home is not None else "which is not in it"
        raise BadCheckpoint(
            f"{name} says that {file} holds tensor {tensor!r}, {where}",
            object=name,
            hint="index and files are of different versions; copy the model again",
        )
