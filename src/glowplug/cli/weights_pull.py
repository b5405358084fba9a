"""``glowplug weights pull``: a checkpoint to a folder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.fetching import Chunk, Concurrency, MaxBandwidth, Memory, fetch_settings, memory_bytes
from glowplug.cli.options import AsJson, TrustedKeys, Uri
from glowplug.cli.output import print_json, progress_bar
from glowplug.cli.sealing import seal_verifier
from glowplug.errors import RemoteError
from glowplug.units import count, format_bytes, format_seconds
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.open import open_source
from glowplug.weights.transfer.pull import Pulled, pull
from glowplug.weights.transfer.pull_journal import STATE_FOLDER
from glowplug.weights.transfer.pull_target import target_folder
from glowplug.weights.transfer.ring import ring_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.weights.base import Checkpoint

_GOES_ON = "the same command goes on from here"

app = App()


@app.command(name="pull", epilog="Example: glowplug weights pull s3://bucket/models/qwen3-8b /models/qwen3-8b")
def pull_command(
    uri: Uri,
    target: Annotated[str, typer.Argument(metavar="FOLDER", help="Where to; made if it is not there.")],
    everything: Annotated[bool, typer.Option("--all", help="Also download weight files that no load would read.")] = False,
    trusted_keys: TrustedKeys = None,
    require_seal: Annotated[
        bool, typer.Option("--require-seal", help="Refuse a checkpoint that no trusted key has sealed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that no pull has put there.")] = False,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Don't wait until the disk has it all: quicker, but a power failure may cost files.")
    ] = False,
    concurrency: Concurrency = None,
    chunk: Chunk = None,
    memory: Memory = None,
    max_bandwidth: MaxBandwidth = None,
    as_json: AsJson = False,
) -> None:
    """Download a checkpoint into a folder, and verify it. An interrupted pull goes on where it stopped."""
    settings = fetch_settings(concurrency=concurrency, chunk=chunk, max_bandwidth=max_bandwidth)
    folder = target_folder(target)
    room = memory_bytes(memory, ring_bytes())
    verify = seal_verifier(trusted_keys)
    source = open_source(uri, env=os.environ)
    try:
        checkpoint = open_checkpoint(source)
        with progress_bar("pulling", total_bytes=_size(checkpoint)) as progress:
            pulled = pull(
                source,
                checkpoint,
                folder,
                settings=settings,
                verify=verify,
                require_seal=require_seal,
                everything=everything,
                force=force,
                sync=not no_sync,
                ring_bytes=room,
                progress=progress,
            )
    except KeyboardInterrupt:
        what = _GOES_ON if _has_kept(folder) else "nothing was changed"
        print(f"glowplug: interrupted; {what}", file=sys.stderr)
        raise
    except RemoteError as error:
        if _has_kept(folder):
            error.hint = f"{error.hint}; {_GOES_ON}" if error.hint else _GOES_ON
        raise
    finally:
        source.close()
    if as_json:
        print_json({
            "folder": str(folder), "source": source.uri, "complete_before": pulled.complete, "files": pulled.files,
            "bytes": pulled.size_bytes, "fetched_bytes": pulled.fetched_bytes, "verified": pulled.verified, "note": pulled.note,
            "requests": pulled.stats.requests if pulled.stats else 0, "retries": pulled.stats.retries if pulled.stats else 0,
            "seconds": round(pulled.seconds, 3),
        })  # fmt: skip
    else:
        _report(pulled, folder)


def _has_kept(folder: Path) -> bool:
    """Whether this attempt, or an earlier one, has left something that the next one goes on with."""
    return (folder / STATE_FOLDER).exists()


def _size(checkpoint: Checkpoint) -> int:
    return sum(file.size_bytes for file in checkpoint.files) + sum(entry.size_bytes for entry in checkpoint.others)


def _report(pulled: Pulled, folder: Path) -> None:
    total = f"{count(pulled.files, 'file')}, {format_bytes(pulled.size_bytes)}"
    if pulled.complete:
        print(f"{folder} is complete already: {total}, verified by {pulled.verified}")
        return
    print(f"pulled {total}, to {folder}, verified by {pulled.verified}")
    speed = f", {format_bytes(round(pulled.fetched_bytes / pulled.seconds))}/s" if pulled.fetched_bytes else ""
    print(f"  fetched {format_bytes(pulled.fetched_bytes)} in {format_seconds(pulled.seconds)}{speed}")
    if pulled.note:
        print(f"  note: the seal does not count here: {pulled.note}")
