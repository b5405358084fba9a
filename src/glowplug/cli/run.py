"""``glowplug run [OPTIONS] -- COMMAND``: one start, supervised."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.options import CacheDir, Engine, SigningKey, StoreUrl, TrustedKeys
from glowplug.errors import UsageError
from glowplug.inject.boot import restore_locale
from glowplug.run.clock import Clock
from glowplug.run.options import RunOptions
from glowplug.run.supervisor import supervise
from glowplug.units import parse_bandwidth, parse_bytes, parse_seconds

_CLOCK = Clock()

app = App()

_EXAMPLE = """
Examples:

  glowplug run --store s3://bucket/glowplug -- vllm serve Qwen/Qwen3-8B

  glowplug run --store s3://bucket/glowplug -- vllm serve s3://bucket/models/qwen3-8b

  glowplug run -- python train.py
"""


@app.command("run", epilog=_EXAMPLE, before_command=True)
def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND [ARG]...", help="The engine's command, as it is without Glowplug.")
    ] = None,
    store: StoreUrl = None,
    cache_dir: CacheDir = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="GLOWPLUG_REPORT", readable=False, help="Write the start report to FILE, as JSON."),
    ] = None,
    restore_deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_RESTORE_DEADLINE",
            help="Start cold if looking for a cache and restoring it takes longer.",
        ),
    ] = "30s",
    publish_deadline: Annotated[
        str, typer.Option(metavar="DURATION", envvar="GLOWPLUG_PUBLISH_DEADLINE", help="Give up publishing after this time.")
    ] = "300s",
    wait: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_WAIT",
            help="Longest wait for another start that compiles the same just now. 0: never wait.",
        ),
    ] = "120s",
    node_store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="GLOWPLUG_NODE_STORE",
            readable=False,  # as for --cache-dir
            help="Keep what was fetched in this folder of the node, for the next start on it. Default: keep nothing.",
        ),
    ] = None,
    node_store_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE", envvar="GLOWPLUG_NODE_STORE_SIZE", help="Most that --node-store keeps; the longest unused goes first."
        ),
    ] = "20GB",
    publish_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_PUBLISH_INTERVAL",
            help="Also publish what the engine compiles while it serves, no more often than this. 0: never.",
        ),
    ] = "15m",
    settle: Annotated[
        str,
        typer.Option(
            metavar="DURATION", envvar="GLOWPLUG_SETTLE", help="How long the cache must be unchanged before it is published."
        ),
    ] = "3s",
    ready_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_READY_TIMEOUT",
            help="Publish nothing if the engine is not ready by then. The engine goes on.",
        ),
    ] = "1h",
    publish: Annotated[bool, typer.Option(envvar="GLOWPLUG_PUBLISH", help="Publish what a cold start compiled.")] = True,
    poison_window: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_POISON_WINDOW",
            help="Start the engine once more, without the cache, if it dies within this time of a restore. 0: never.",
        ),
    ] = "60s",
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="GLOWPLUG_METRICS",
            readable=False,
            help="Write the start's metrics to FILE, in Prometheus' text format.",
        ),
    ] = None,
    restore: Annotated[bool, typer.Option(envvar="GLOWPLUG_RESTORE", help="Look for a published cache, and restore it.")] = True,
    cache: Annotated[
        bool,
        typer.Option(
            envvar="GLOWPLUG_CACHE", help="--no-cache: restore and publish nothing, leave the engine's cache settings alone."
        ),
    ] = True,
    weights: Annotated[
        bool,
        typer.Option(
            envvar="GLOWPLUG_WEIGHTS",
            help="Stream a checkpoint with a URL into memory while the engine imports; read a local one ahead.",
        ),
    ] = True,
    host_memory: Annotated[
        str,
        typer.Option(
            metavar="auto|full|SIZE",
            envvar="GLOWPLUG_HOST_MEMORY",
            help="How much of the weights is buffered at once. auto: all, if it fits beside the engine."
            " Default: $RUNAI_STREAMER_MEMORY_LIMIT, else auto.",
        ),
    ] = "",
    max_bandwidth: Annotated[
        str,
        typer.Option(
            metavar="SPEED",
            envvar="GLOWPLUG_MAX_BANDWIDTH",
            help="Fetch weights no faster than this, such as 1GB/s or 10Gbit/s. Default: no cap.",
        ),
    ] = "",
    weights_deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_WEIGHTS_DEADLINE",
            help="Leave the weights to the engine if reading the checkpoint's headers takes longer.",
        ),
    ] = "30s",
    require_seal: Annotated[
        bool,
        typer.Option(
            "--require-seal", envvar="GLOWPLUG_REQUIRE_SEAL", help="Start only with weights that a trusted key has sealed."
        ),
    ] = False,
    role: Annotated[
        str,
        typer.Option(
            metavar="auto|reader|writer",
            envvar="GLOWPLUG_ROLE",
            help="A reader restores, and publishes nothing. auto: a writer where there is a key to sign with.",
        ),
    ] = "auto",
    reports_as: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="GLOWPLUG_REPORTS_AS",
            help="Where a reader reports a cache that has failed: v1/reports/NAME/ in the store.",
        ),
    ] = "default",
    signing_key: SigningKey = None,
    trusted_keys: TrustedKeys = None,
    engine: Engine = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", envvar="GLOWPLUG_QUIET", help="Print warnings only, no table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the start report to standard error as one line of JSON.")] = False,
) -> None:
    """Run an engine with a shared compile cache and weights that are there in time.

    The newest compile cache that was published for exactly this software, hardware, model and command is restored, its signature
    verified; then COMMAND starts, its output and exit code untouched. A cold start's cache is published once the engine is ready.
    If anything of this fails, the engine starts cold. A checkpoint with a URL streams into a host buffer while the engine imports.

    Exit code: COMMAND's own; 128 + n if signal n ended it; 127 if there is no such command, 126 if it can't be executed; 2 for
    wrong usage.
    """
    if not command:
        raise UsageError("no command to run", object="COMMAND", hint="write it after --, as in: glowplug run -- vllm serve MODEL")
    restore_locale()
    options = RunOptions(
        store=store or None,
        cache_dir=cache_dir,
        report=report,
        restore_deadline_s=parse_seconds(restore_deadline, name="--restore-deadline"),
        publish_deadline_s=parse_seconds(publish_deadline, name="--publish-deadline"),
        wait_s=parse_seconds(wait, name="--wait"),
        node_store=node_store,
        node_store_bytes=parse_bytes(node_store_size, name="--node-store-size"),
        publish_interval_s=parse_seconds(publish_interval, name="--publish-interval"),
        settle_s=parse_seconds(settle, name="--settle"),
        ready_timeout_s=parse_seconds(ready_timeout, name="--ready-timeout"),
        publish=publish,
        restore=restore,
        poison_window_s=parse_seconds(poison_window, name="--poison-window"),
        metrics=metrics,
        cache=cache,
        signing_key=signing_key,
        trusted_keys=tuple(trusted_keys or ()),
        engine=engine,
        quiet=quiet,
        json=as_json,
        weights=weights,
        host_memory=host_memory,
        max_bandwidth=parse_bandwidth(max_bandwidth, name="--max-bandwidth") if max_bandwidth else None,
        weights_deadline_s=parse_seconds(weights_deadline, name="--weights-deadline"),
        require_seal=require_seal,
        role=role or "auto",
        reports_as=reports_as or "default",
    )
    raise typer.Exit(supervise(options, command, os.environ, clock=_CLOCK))
