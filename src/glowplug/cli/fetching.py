"""Options of the commands that fetch weights: over what the environment says, and named as its variables are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from glowplug.errors import UsageError
from glowplug.units import MIB, parse_bandwidth, parse_bytes
from glowplug.weights.fetch.ferry import RING_BYTES
from glowplug.weights.fetch.settings import FetchSettings

Concurrency = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=256, help="Requests at once. Default: $GLOWPLUG_WEIGHTS_CONCURRENCY, else found while it runs."
    ),
]
Chunk = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Largest request. Default: $GLOWPLUG_WEIGHTS_CHUNK_SIZE, else 8MiB, or 16MiB from a local disk."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help=f"Buffer for what is under way. Default: {RING_BYTES // MIB}MiB, less where memory is short."
    ),
]
MaxBandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="SPEED", help="Read no faster than this, such as 500MB/s or 4Gbit/s. Default: $GLOWPLUG_MAX_BANDWIDTH, else no cap."
    ),
]

_OPTIONS = {"concurrency": "--concurrency", "chunk_bytes": "--chunk", "max_bandwidth": "--max-bandwidth"}


def fetch_settings(*, concurrency: int | None = None, chunk: str | None = None, max_bandwidth: str | None = None) -> FetchSettings:
    """The environment's settings with the options over them.

    Raises:
        UsageError: a value that can't be.
    """
    settings = FetchSettings.from_env(os.environ)
    try:
        return settings.over(
            concurrency=concurrency,
            chunk_bytes=parse_bytes(chunk, name="--chunk") if chunk is not None else None,
            max_bandwidth=parse_bandwidth(max_bandwidth, name="--max-bandwidth") if max_bandwidth is not None else None,
        )
    except UsageError as error:  # the environment's own values were good, so it is about one of these
        option = _OPTIONS.get(error.object, error.object)
        raise UsageError(error.message.replace(error.object, option, 1), object=option, hint=error.hint) from None


def memory_bytes(memory: str | None, default: int) -> int:
    """The option's bytes.

    Raises:
        UsageError: not a size.
    """
    return parse_bytes(memory, name="--memory") if memory is not None else default
