"""``glowplug weights stream``: a whole load without an engine, to measure it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.fetching import Chunk, Concurrency, MaxBandwidth, fetch_settings
from glowplug.cli.options import AsJson, TrustedKeys, Uri
from glowplug.cli.output import print_json, progress_bar
from glowplug.cli.sealing import seal_verifier
from glowplug.errors import UnknownKey, Unsigned
from glowplug.units import MIB, count, format_bytes, format_seconds, parse_bytes
from glowplug.weights.bench.measure import Measured, measure
from glowplug.weights.seals.loading import load_seal
from glowplug.weights.streaming.stream import WINDOW_BYTES, stream_bytes

if TYPE_CHECKING:
    from glowplug.weights.base import Checkpoint, Plan, Source
    from glowplug.weights.fetch.settings import FetchSettings
    from glowplug.weights.seals.seal import Seal

app = App()


@app.command(epilog="Example: glowplug weights stream s3://bucket/models/qwen3-8b --json")
def stream(
    uri: Uri,
    concurrency: Concurrency = None,
    chunk: Chunk = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE|full", help=f"Buffer, such as 1GiB; full: all at once. Default: {WINDOW_BYTES // MIB}MiB."),
    ] = None,
    max_bandwidth: MaxBandwidth = None,
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Load every tensor and drop it, to measure: throughput, processor time, requests, retries."""
    settings = fetch_settings(concurrency=concurrency, chunk=chunk, max_bandwidth=max_bandwidth)
    memory_bytes = None if memory is None else -1 if memory == "full" else parse_bytes(memory, name="--memory")
    notes: list[str] = []
    opened = stream_bytes(
        uri,
        env=os.environ,
        settings=settings,
        memory_bytes=memory_bytes,
        find_verifier=lambda source, checkpoint: _seal(source, checkpoint, trusted_keys, notes),
    )
    try:
        with progress_bar("streaming", total_bytes=opened.plan.checkpoint.size_bytes) as progress:
            measured = measure(opened, progress=progress)
    except KeyboardInterrupt:
        print("glowplug: interrupted", file=sys.stderr)
        raise
    finally:
        opened.close()
    note = "; ".join(notes)
    asked = _not_as_asked(measured, settings, opened.plan)
    if as_json:
        fetch = measured.fetch
        print_json({
            "uri": opened.plan.checkpoint.uri, "tensors": measured.tensors, "bytes": measured.bytes,
            "seconds": round(measured.seconds, 4), "first_tensor_s": round(measured.first_s, 4),
            "gb_per_s": round(measured.gb_per_s, 4),
            "cpu_s": round(measured.cpu_s, 4), "cpu_s_per_gb": round(measured.cpu_s_per_gb, 4), "requests": fetch.requests,
            "retries": fetch.retries, "hedges": fetch.hedges, "stalls": fetch.stalls, "throttled": fetch.throttled,
            "bytes_read": fetch.bytes_read, "concurrency": fetch.concurrency, "most_at_once": fetch.most_at_once,
            "chunk_bytes": fetch.chunk_bytes, "blocked_s": round(fetch.blocked_s, 4), "mode": measured.mode,
            "ring_bytes": measured.ring_bytes, "verified": fetch.verified, "note": "; ".join(filter(None, (note, asked))),
        })  # fmt: skip
    else:
        _report(measured, note)
        if asked:
            print(f"  note        {asked}")


def _not_as_asked(measured: Measured, settings: FetchSettings, plan: Plan) -> str:
    """What was asked for and could not be; empty if all is as it was asked for."""
    if measured.mode == "mapped":
        given = settings.chunk_bytes or settings.concurrency or settings.max_bandwidth
        return "the files are mapped, where --chunk, --concurrency and --max-bandwidth mean nothing" if given else ""
    most = max((file.size_bytes - file.data_start for file in plan.checkpoint.files), default=0)
    used = measured.fetch.chunk_bytes
    if settings.chunk_bytes is None or used >= min(settings.chunk_bytes, most):
        return ""
    why = "blocks of the seal must be whole" if measured.fetch.verified else "the buffer must hold several"
    return f"requests of up to {used} bytes, not the {settings.chunk_bytes} asked for: {why}"


def _seal(source: Source, checkpoint: Checkpoint, trusted_keys: list[str] | None, notes: list[str]) -> Seal | None:
    try:
        return load_seal(source, checkpoint, seal_verifier(trusted_keys))
    except (UnknownKey, Unsigned) as error:
        notes.append(error.message)
        return None


def _report(measured: Measured, note: str) -> None:
    fetch = measured.fetch
    print(f"{count(measured.tensors, 'tensor')}, {format_bytes(measured.bytes)} in {format_seconds(measured.seconds)}")
    print(f"  throughput  {measured.gb_per_s:.2f} GB/s, first tensor after {format_seconds(measured.first_s)}")
    print(f"  processor   {format_seconds(measured.cpu_s)}, {measured.cpu_s_per_gb:.2f} s for each GB")
    at_once = f"{fetch.most_at_once} at once at most, {fetch.concurrency} allowed at the end"
    print(f"  requests    {fetch.requests} of up to {format_bytes(fetch.chunk_bytes)}, {at_once}")
    trouble = {"retries": fetch.retries, "hedges": fetch.hedges, "stalls": fetch.stalls, "slow-downs": fetch.throttled}
    print(f"  trouble     {', '.join(f'{number} {name}' for name, number in trouble.items() if number) or 'none'}")
    buffer = format_bytes(measured.ring_bytes) if measured.ring_bytes else "the page cache alone"
    print(f"  memory      {measured.mode}, {buffer}")
    print(f"  verified    {'by its seal' if fetch.verified else f'no: {note}' if note else 'no: it has no seal'}")
