"""``glowplug weights serve``: stream a checkpoint to the ranks of this node. The loader inside an engine starts it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.fetching import Concurrency, MaxBandwidth, fetch_settings
from glowplug.cli.options import AsJson, Uri
from glowplug.cli.output import print_json
from glowplug.errors import UnknownKey, Unsigned
from glowplug.units import format_bytes, format_seconds, parse_bytes
from glowplug.weights.buffer.serving import serve as serve_ranks

if TYPE_CHECKING:
    from glowplug.weights.base import Checkpoint, Source, Verifier

app = App()


@app.command(hidden=True, epilog="Example: glowplug weights serve s3://bucket/models/qwen3-8b --socket /tmp/mine/socket --ranks 4")
def serve(
    uri: Uri,
    socket: Annotated[Path, typer.Option(metavar="FILE", help="Socket that the ranks attach to, in a folder of this user alone.")],
    ranks: Annotated[int, typer.Option(metavar="N", min=1, help="Processes of this node that load.")] = 1,
    host_memory: Annotated[
        str | None,
        typer.Option(
            metavar="auto|full|SIZE",
            help="Buffer, such as 4GiB. Default: $RUNAI_STREAMER_MEMORY_LIMIT, else auto: all of it, if it fits beside the engine.",
        ),
    ] = None,
    engine_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="What the engine needs beside the buffer and the weights.")
    ] = "0",
    on_cpu: Annotated[bool, typer.Option("--on-cpu", help="The engine keeps the weights in this machine's memory.")] = False,
    concurrency: Concurrency = None,
    max_bandwidth: MaxBandwidth = None,
    as_json: AsJson = False,
) -> None:
    """Stream a checkpoint to the ranks of this node. Ends when all are done, when none comes, or with who started it."""
    settings = fetch_settings(concurrency=concurrency, max_bandwidth=max_bandwidth)
    beside = parse_bytes(engine_memory, name="--engine-memory")
    say = partial(print, file=sys.stderr)
    stats = serve_ranks(
        uri,
        socket,
        ranks=ranks,
        settings=settings,
        memory=host_memory or settings.memory,
        engine_bytes=lambda size_bytes: beside + (size_bytes if on_cpu else 0),
        find_verifier=_seal,
        say=say,
    )
    if as_json:
        print_json({
            "served": stats is not None,
            "ranks": len(stats.ranks) if stats else 0,
            "bytes": stats.fetch.bytes if stats else 0,
            "seconds": round(stats.fetch.seconds, 3) if stats else 0.0,
            "error": stats.error if stats else "",
        })  # fmt: skip
    elif stats is None:
        say("another process serves at this socket")
    else:
        say(f"weights: {format_bytes(stats.fetch.bytes)} in {format_seconds(stats.fetch.seconds)}")
    if stats is not None and stats.error:
        say(f"glowplug: {stats.error}")
        raise typer.Exit(1)


def _seal(source: Source, checkpoint: Checkpoint) -> Verifier | None:
    """The checkpoint's seal; a seal that nobody trusted has made verifies nothing, and stops nothing."""
    from glowplug.cli.sealing import seal_verifier  # noqa: PLC0415  loads cryptography
    from glowplug.weights.seals.loading import load_seal  # noqa: PLC0415  the same

    try:
        return load_seal(source, checkpoint, seal_verifier(None))
    except (Unsigned, UnknownKey) as error:
        print(f"glowplug: the weights are not verified: {error.line()}", file=sys.stderr)
        return None
