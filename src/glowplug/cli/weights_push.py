"""``glowplug weights push``: a folder, or a snapshot in the Hugging Face cache, to a store."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.options import AsJson, TrustedKeys
from glowplug.cli.output import print_json, print_table, progress_bar
from glowplug.cli.sealing import Algorithm, SigningKey, seal_signer, seal_verifier
from glowplug.errors import UsageError
from glowplug.printable import printable
from glowplug.store import open_store
from glowplug.units import count, format_bytes, format_seconds
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.seals.loading import load_signed_seal
from glowplug.weights.seals.seal import new_hash
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.marker import COMPLETE_NAME, SEAL_NAME
from glowplug.weights.transfer.push import CONNECTIONS, push
from glowplug.weights.transfer.push_job import Sealing
from glowplug.weights.transfer.snapshot import find_folder

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.cache.envelope import Json
    from glowplug.weights.base import Checkpoint
    from glowplug.weights.transfer.pushed import Pushed

app = App()


@app.command(name="push", epilog="Example: glowplug weights push Qwen/Qwen3-8B s3://bucket/models/qwen3-8b --seal")
def push_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|REPO",
            help="What to upload: a folder, or a repository in the Hugging Face cache, such as Qwen/Qwen3-8B.",
        ),
    ],
    store: Annotated[str, typer.Argument(metavar="STORE_URL", help="Where to: s3://bucket/prefix or file:///folder.")],
    revision: Annotated[str | None, typer.Option(metavar="NAME", help="Branch, tag or commit of REPO. Default: main.")] = None,
    seal: Annotated[
        bool, typer.Option("--seal", help="Also sign digests of everything, and write them beside it as glowplug.seal.json.")
    ] = False,
    algorithm: Algorithm = "sha256",
    signing_key: SigningKey = None,
    trusted_keys: TrustedKeys = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files at STORE_URL whose content differs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, and list what would be sent.")] = False,
    connections: Annotated[int, typer.Option(metavar="N", min=1, max=256, help="Requests at once.")] = CONNECTIONS,
    as_json: AsJson = False,
) -> None:
    """Upload a checkpoint to a store. What is there already is not sent again; an interrupted push goes on where it stopped."""
    if "://" in source and not source.startswith("file:///"):
        hint = "push takes a folder of this machine; bring the checkpoint here with glowplug weights pull"
        raise UsageError(f"{source} is not a folder of this machine", object=source, hint=hint)
    if not seal and (signing_key is not None or algorithm != "sha256"):
        option = "--signing-key" if signing_key is not None else "--algorithm"
        raise UsageError(f"{option} is for a seal, and --seal is not there", object=option, hint="add --seal, or leave it out")
    folder = find_folder(source, env=os.environ, revision=revision)
    target = open_store(store, env=os.environ)
    checkpoint = open_checkpoint(LocalSource(folder))
    sealing = None
    if seal and not dry_run:
        new_hash(algorithm)
        sealing = Sealing(seal_signer(signing_key), algorithm)
    brought = None if seal else _seal_of(folder, checkpoint, trusted_keys)
    try:
        with progress_bar("pushing", total_bytes=_size(checkpoint)) as progress:
            pushed = push(
                checkpoint,
                folder,
                target,
                sealing=sealing,
                seal=brought,
                force=force,
                dry_run=dry_run,
                connections=connections,
                progress=progress,
            )
    except KeyboardInterrupt:
        print("glowplug: interrupted; the same command goes on from here", file=sys.stderr)
        raise
    if as_json:
        print_json(_document(pushed, target.url, dry_run=dry_run))
    else:
        _report(pushed, target.url, dry_run=dry_run)


def _seal_of(folder: Path, checkpoint: Checkpoint, trusted_keys: list[str] | None) -> bytes | None:
    """The seal that lies in the folder, which must be good; None if there is none."""
    return load_signed_seal(LocalSource(folder), checkpoint, seal_verifier(trusted_keys))


def _size(checkpoint: Checkpoint) -> int:
    return sum(file.size_bytes for file in checkpoint.files) + sum(entry.size_bytes for entry in checkpoint.others)


def _document(pushed: Pushed, url: str, *, dry_run: bool) -> Json:
    return {
        "store": url,
        "dry_run": dry_run,
        "complete_before": pushed.complete,
        "sealed": pushed.sealed,
        "bytes": pushed.size_bytes,
        "sent_bytes": pushed.sent_bytes,
        "seconds": round(pushed.seconds, 3),
        "files": [
            {"name": file.name, "bytes": file.size_bytes, "sha256": file.sha256, "state": file.state, "kept_bytes": file.kept_bytes}
            for file in pushed.files
        ],
        "left": list(pushed.left),
        "notes": list(pushed.notes),
    }


def _report(pushed: Pushed, url: str, *, dry_run: bool) -> None:
    total = f"{count(len(pushed.files), 'file')}, {format_bytes(pushed.size_bytes)}"
    if dry_run:
        print_table(["STATE", "SIZE", "FILE"], [[file.state, format_bytes(file.size_bytes), file.name] for file in pushed.files])
        to_send = [file for file in pushed.files if file.state == "to send"]
        size = format_bytes(sum(file.size_bytes for file in to_send))
        print(f"would send {count(len(to_send), 'file')}, {size}, to {url}")
    elif pushed.complete:
        print(f"{url} is complete already: {total}")
    else:
        speed = f", {format_bytes(round(pushed.sent_bytes / pushed.seconds))}/s" if pushed.sent_bytes and pushed.seconds else ""
        print(f"pushed {total}, to {url}")
        print(f"  sent {format_bytes(pushed.sent_bytes)} in {format_seconds(pushed.seconds)}{speed}")
        wrote = [name for name, written in ((SEAL_NAME, pushed.sealed), (COMPLETE_NAME, pushed.marked)) if written]
        print(f"  wrote {' and '.join(wrote)}")
    for name in pushed.left:
        print(f"note: {url} also holds {printable(name)}, which is no part of this checkpoint")
    for note in pushed.notes:
        print(f"note: {printable(note)}")
