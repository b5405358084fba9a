"""``glowplug weights seal``: sign a checkpoint's digests, or check the checkpoint against them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.fetching import Concurrency, MaxBandwidth, Memory, fetch_settings, memory_bytes
from glowplug.cli.options import AsJson, TrustedKeys, Uri
from glowplug.cli.output import print_json, progress_bar
from glowplug.cli.sealing import Algorithm, SigningKey, seal_signer, seal_verifier
from glowplug.errors import Unsigned
from glowplug.printable import printable
from glowplug.units import count, format_bytes, format_seconds
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.settings import s3_environment
from glowplug.weights.seals.document import seal_document
from glowplug.weights.seals.loading import load_seal
from glowplug.weights.seals.seal import new_hash
from glowplug.weights.seals.sealing import check_checkpoint, digest_checkpoint, refusal, refuse_unwritable, write_seal
from glowplug.weights.sources.open import open_source
from glowplug.weights.transfer.marker import SEAL_NAME
from glowplug.weights.transfer.ring import ring_bytes

if TYPE_CHECKING:
    from glowplug.weights.base import Checkpoint, Source
    from glowplug.weights.fetch.settings import FetchSettings

app = App()


@app.command(epilog="Example: glowplug weights seal s3://bucket/models/qwen3-8b --key fleet.key")
def seal(
    uri: Uri,
    check: Annotated[bool, typer.Option("--check", help="Sign nothing: compare every byte with the seal that is there.")] = False,
    algorithm: Algorithm = "sha256",
    signing_key: SigningKey = None,
    trusted_keys: TrustedKeys = None,
    concurrency: Concurrency = None,
    memory: Memory = None,
    max_bandwidth: MaxBandwidth = None,
    as_json: AsJson = False,
) -> None:
    """Sign digests of a checkpoint and write them beside it. Loads then check every block before it is used."""
    settings = fetch_settings(concurrency=concurrency, max_bandwidth=max_bandwidth)
    room = memory_bytes(memory, ring_bytes())
    new_hash(algorithm)
    if not check:
        refuse_unwritable(uri)
    sign = None if check else seal_signer(signing_key)
    source = open_source(uri, env=os.environ)
    try:
        checkpoint = open_checkpoint(source)
        if sign is None:
            _check(source, checkpoint, settings, room, trusted_keys, signing_key, as_json=as_json)
            return
        begun = time.monotonic()
        with progress_bar("reading", total_bytes=checkpoint.size_bytes) as progress:
            made, stats = digest_checkpoint(
                source, checkpoint, settings=settings, algorithm=algorithm, ring_bytes=room, progress=progress
            )
        folder = Path(source.name_of(checkpoint.files[0])).parent if source.is_local else None
        where = write_seal(source, sign(seal_document(made)), env=s3_environment(os.environ), folder=folder)
        seconds = time.monotonic() - begun
    except KeyboardInterrupt:
        print("glowplug: interrupted; nothing was written", file=sys.stderr)
        raise
    finally:
        source.close()
    blocks = sum(len(file.digests) // 32 for file in made.files)
    if as_json:
        print_json({
            "seal": where, "algorithm": algorithm, "block_bytes": made.block_bytes, "files": len(made.files),
            "small_files": len(made.others), "blocks": blocks, "bytes": checkpoint.size_bytes, "requests": stats.requests,
            "seconds": round(seconds, 3),
        })  # fmt: skip
        return
    what = f"{count(len(made.files), 'weight file')}, {count(len(made.others), 'small file')}"
    print(f"sealed {what}: {format_bytes(checkpoint.size_bytes)} in {count(blocks, 'block')} in {format_seconds(seconds)}")
    print(f"  wrote {where}")


def _check(
    source: Source,
    checkpoint: Checkpoint,
    settings: FetchSettings,
    room: int,
    trusted_keys: list[str] | None,
    signing_key: str | None,
    *,
    as_json: bool,
) -> None:
    begun = time.monotonic()
    found = load_seal(source, checkpoint, seal_verifier(trusted_keys, signing_key=signing_key))
    if found is None:
        raise Unsigned(f"{source.uri} has no {SEAL_NAME}", object=source.uri, hint="seal it: glowplug weights seal FOLDER")
    with progress_bar("checking", total_bytes=checkpoint.size_bytes) as progress:
        differences = check_checkpoint(source, checkpoint, found, settings=settings, ring_bytes=room, progress=progress)
    seconds = time.monotonic() - begun
    names = {file.name: source.name_of(file) for file in checkpoint.files}
    names |= {entry.name: source.name_of(entry) for entry in checkpoint.others}
    if as_json:
        print_json({
            "good": not differences, "bytes": checkpoint.size_bytes, "seconds": round(seconds, 3), "algorithm": found.algorithm,
            "differences": [{"file": names[name], "start": start, "end": end} for name, start, end in differences],
        })  # fmt: skip
        if differences:
            raise typer.Exit(1)
    elif differences:
        for name, start, end in differences[1:]:
            print(f"{printable(names[name])}: bytes {start} to {end - 1} are not those that were sealed")
        raise refusal(differences, lambda name: names[name])
    else:
        print(f"{source.uri} is as it was sealed: {format_bytes(checkpoint.size_bytes)} in {format_seconds(seconds)}")
