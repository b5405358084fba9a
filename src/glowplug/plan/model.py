"""The model that is planned for: exact bytes from its headers, or a size by hand, and its configuration where there is one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.errors import BadCheckpoint, ObjectNotFound, UsageError
from glowplug.plan.architecture import parse_architecture
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.checkpoint.totals import by_dtype, total
from glowplug.weights.sources.open import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from glowplug.plan.architecture import Architecture

_CONFIG = "config.json"
_MOST_CONFIG_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a model.

    Attributes:
        name: as the user wrote it, without credentials; empty for a size by hand.
        weight_bytes: of all tensors that are loaded.
        is_exact: read from headers, not given by hand.
        files: weight files; 0 by hand.
        tensors: 0 by hand.
        parameters: elements as stored; 0 by hand.
        largest_tensor_bytes: 0 by hand.
        dtypes: bytes of each element type, most first.
        architecture: None where no configuration was given or found.
        is_local: it lies in a folder of this machine.
    """

    name: str
    weight_bytes: int
    is_exact: bool = False
    files: int = 0
    tensors: int = 0
    parameters: int = 0
    largest_tensor_bytes: int = 0
    dtypes: tuple[tuple[str, int], ...] = ()
    architecture: Architecture | None = None
    is_local: bool = False


def read_model(uri: str, *, config: Path | None = None, env: Mapping[str, str] | None = None) -> Model:
    """From a checkpoint's listing, headers and ``config.json``. Reads no weight; blocks for a few round trips.

    Args:
        uri: ``s3://bucket/prefix``, ``http(s)://...``, ``file:///...`` or a path.
        config: another configuration than the checkpoint's own.
        env: credentials and endpoints; None: this process's environment.

    Raises:
        UsageError: the URI or the configuration can't be.
        RemoteError: the store did not deliver.
        BadCheckpoint: a header or the index is wrong, or no file holds a tensor.
        IncompatibleError: there are no safetensors files.
    """
    source = open_source(uri, env=env)
    try:
        try:
            checkpoint = open_checkpoint(source)
        except ObjectNotFound as error:
            if "://" in uri or uri.count("/") != 1 or uri.startswith((".", "/")):
                raise
            hint = "a name of the Hugging Face hub isn't read: give s3://..., a folder, or --weights 65GB --config config.json"
            raise UsageError(error.message, object=uri, hint=hint) from None
        entry = next(
            (entry for entry in checkpoint.others if entry.name == _CONFIG and entry.size_bytes <= _MOST_CONFIG_BYTES), None
        )
        architecture = None
        if config is not None:
            architecture = read_config(config)
        elif entry is not None:
            raw = source.read_small(entry, 0, entry.size_bytes)
            architecture = parse_architecture(raw, name=source.name_of(entry))
        whole = total(checkpoint)
        if whole.bytes == 0:
            hint = "check that this is the model's folder, and that its copy is complete"
            raise BadCheckpoint(f"{checkpoint.uri}: its files hold no weights", object=checkpoint.uri, hint=hint)
        return Model(
            name=checkpoint.uri,
            weight_bytes=whole.bytes,
            is_exact=True,
            files=len(checkpoint.files),
            tensors=whole.tensors,
            parameters=whole.parameters,
            largest_tensor_bytes=max((tensor.size_bytes for tensor in checkpoint.tensors), default=0),
            dtypes=tuple((name, of.bytes) for name, of in by_dtype(checkpoint).items()),
            architecture=architecture,
            is_local=source.is_local,
        )
    finally:
        source.close()


def read_config(path: Path) -> Architecture:
    """A ``config.json`` on this machine.

    Raises:
        UsageError: it can't be read, or is no configuration.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_CONFIG_BYTES + 1)
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        raise UsageError(f"--config: {path}: {reason}", object="--config", hint="give the model's config.json") from None
    if len(raw) > _MOST_CONFIG_BYTES:
        raise UsageError(
            f"--config: {path} is too large for a configuration", object="--config", hint="give the model's config.json"
        )
    return parse_architecture(raw, name=str(path))
