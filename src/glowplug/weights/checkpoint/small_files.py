"""The files beside the weights: which of them an engine reads, and their content.

Configuration, tokenizer and code are read by engines; licences, model cards and pictures are not. Glowplug's own objects beside a
checkpoint, its seal and its complete marker, are no part of the model either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from glowplug.errors import UsageError
from glowplug.units import MIB
from glowplug.weights.fetch.crew import each
from glowplug.weights.transfer.marker import OWN_NAMES

if TYPE_CHECKING:
    from glowplug.weights.base import Checkpoint, Entry, Source

WEIGHT_SUFFIXES: Final = (
    ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".tensors", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".ckpt", ".npz",
)  # fmt: skip
"""Of files that hold weights, in whatever format."""

MOST_BYTES: Final = 64 * MIB
"""A larger file is no configuration; it is left out."""

_READ_SUFFIXES = (".json", ".py", ".model", ".txt", ".jinja", ".tiktoken", ".yaml", ".yml", ".bpe", ".spm", ".vocab")
_NUMBERED_TOKENIZER = re.compile(r"\.model\.v\d+\w*$")  # Mistral's tokenizer.model.v3
_PROSE = re.compile(r"(licen[cs]e|notice|readme|use_policy)", re.IGNORECASE)
_DUPLICATES = ("original/", "onnx/", "openvino/", "metal/")  # the model once more, for other programs
_MOST_FILES = 2_000
_THREADS = 16


def is_small_file(name: str) -> bool:
    """Whether an engine reads a file of this name: at a checkpoint's top level, or one folder deep."""
    parts = name.split("/")
    base = parts[-1]
    if len(parts) > 2 or any(part in {"", ".", ".."} or part.startswith(".") or len(part.encode()) > 255 for part in parts):
        return False
    if "\0" in name or name.startswith(_DUPLICATES) or base in OWN_NAMES or _PROSE.match(base):
        return False
    return base.endswith(_READ_SUFFIXES) or bool(_NUMBERED_TOKENIZER.search(base))


def small_files(checkpoint: Checkpoint) -> tuple[list[Entry], list[Entry]]:
    """The files that an engine reads, by name; and those that it would read if they were not larger than ``MOST_BYTES``."""
    named = sorted(entry for entry in checkpoint.others if is_small_file(entry.name))
    return [entry for entry in named if entry.size_bytes <= MOST_BYTES], [entry for entry in named if entry.size_bytes > MOST_BYTES]


def read_small_files(source: Source, checkpoint: Checkpoint) -> dict[str, bytes]:
    """Name to content of all small files, read at once by a few threads. Memory: all of them.

    Raises:
        UsageError: there are thousands, so this is no checkpoint.
        RemoteError: a file could not be read, or has changed.
    """
    wanted, _ = small_files(checkpoint)
    if len(wanted) > _MOST_FILES:
        raise UsageError(
            f"{checkpoint.uri} holds {len(wanted)} small files, too many for one checkpoint",
            object=checkpoint.uri,
            hint="name the folder of one checkpoint",
        )
    contents = each(lambda entry: source.read_small(entry, 0, entry.size_bytes), wanted, threads=_THREADS, name="glowplug-small")
    return {entry.name: content for entry, content in zip(wanted, contents, strict=True)}
