"""``glowplug run [OPTIONS] -- COMMAND``: one start, supervised."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003  typer reads the annotations
from typing import Annotated

import typer

from glowplug.errors import UsageError
from glowplug.inject.boot import restore_locale
from glowplug.run.clock import Clock
from glowplug.run.options import RunOptions
from glowplug.run.supervisor import supervise
from glowplug.units import parse_bandwidth, parse_bytes, parse_seconds

_CLOCK = Clock()

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EXAMPLE = """
Examples:

  glowplug run --store s3://bucket/glowplug -- vllm serve Qwen/Qwen3-8B

  glowplug run --store s3://bucket/glowplug -- vllm serve s3://bucket/models/qwen3-8b

  glowplug run -- python train.py
"""


@app.command(
    "run",
    epilog=_EXAMPLE,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False, "help_option_names": ["-h", "--help"]},
)
def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND [ARG]...", help="The engine's command, as it is.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="GLOWPLUG_STORE",
            help="s3://bucket/prefix or file:///folder. Without one, a store of your own in your cache folder.",
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="GLOWPLUG_CACHE_DIR",
            readable=False,  # a folder that can't be used is no usage error: the engine starts cold
            help="Where the live cache lies, on this node's disk. Default: $XDG_CACHE_HOME/glowplug/live or /var/tmp/glowplug-UID.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="GLOWPLUG_REPORT", readable=False, help="Write the start report here, as JSON."),
    ] = None,
    restore_deadline: Annotated[
        str, typer.Option(metavar="DURATION", envvar="GLOWPLUG_RESTORE_DEADLINE", help="Start cold if the restore takes longer.")
    ] = "30s",
    publish_deadline: Annotated[
        str, typer.Option(metavar="DURATION", envvar="GLOWPLUG_PUBLISH_DEADLINE", help="Give a publication up after this time.")
    ] = "300s",
    wait: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_WAIT",
            help="How long a start waits for another one that compiles the same. 0: never.",
        ),
    ] = "120s",
    node_store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="GLOWPLUG_NODE_STORE",
            readable=False,  # as for --cache-dir
            help="Keep what was fetched in this folder of the node, for the next start on it. Default: nowhere.",
        ),
    ] = None,
    node_store_size: Annotated[
        str,
        typer.Option(metavar="SIZE", envvar="GLOWPLUG_NODE_STORE_SIZE", help="How much is kept there; the longest unused goes."),
    ] = "20GB",
    publish_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_PUBLISH_INTERVAL",
            help="Publish what a serving engine compiles later, no more often than this. 0: never.",
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
        typer.Option(metavar="DURATION", envvar="GLOWPLUG_READY_TIMEOUT", help="Stop waiting for readiness; the engine goes on."),
    ] = "1h",
    publish: Annotated[bool, typer.Option(envvar="GLOWPLUG_PUBLISH", help="Publish what a cold start compiled.")] = True,
    poison_window: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_POISON_WINDOW",
            help="Start an engine once more, without the cache, if it dies so soon after a restore. 0: never.",
        ),
    ] = "60s",
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="GLOWPLUG_METRICS", readable=False, help="Write the start's metrics here, for Prometheus."
        ),
    ] = None,
    restore: Annotated[bool, typer.Option(envvar="GLOWPLUG_RESTORE", help="Restore what has been published.")] = True,
    cache: Annotated[bool, typer.Option(envvar="GLOWPLUG_CACHE", help="Off: only run and report.")] = True,
    weights: Annotated[
        bool,
        typer.Option(
            envvar="GLOWPLUG_WEIGHTS", help="Stream a checkpoint with a URL while the engine imports; read a local one ahead."
        ),
    ] = True,
    host_memory: Annotated[
        str,
        typer.Option(
            metavar="auto|full|SIZE",
            envvar="GLOWPLUG_HOST_MEMORY",
            help="How much of the weights is buffered at once. auto: all of it, if it fits beside the engine.",
        ),
    ] = "",
    max_bandwidth: Annotated[
        str, typer.Option(metavar="SPEED", envvar="GLOWPLUG_MAX_BANDWIDTH", help="Fetch weights no faster than this, as in 1GB/s.")
    ] = "",
    weights_deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="GLOWPLUG_WEIGHTS_DEADLINE",
            help="Leave the weights to the engine if their headers take longer.",
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
            metavar="NAME", envvar="GLOWPLUG_REPORTS_AS", help="Report a cache that has failed under v1/reports/NAME/ in the store."
        ),
    ] = "default",
    signing_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Private key: PEM file, PEM text, or KMS ARN. Also GLOWPLUG_SIGNING_KEY.")
    ] = None,
    trusted_keys: Annotated[
        list[str] | None, typer.Option(metavar="KEYS", help="Public keys: files, folders, or KMS ARNs. Also GLOWPLUG_TRUSTED_KEYS.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", envvar="GLOWPLUG_ENGINE", help="vllm or generic; default: by the command.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", envvar="GLOWPLUG_QUIET", help="No table, warnings only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the start report to standard error as one line of JSON.")] = False,
) -> None:
    """Run an engine with a shared compile cache and weights that are there in time.

    The newest compile cache that was published for exactly this software, hardware, model and command is restored, its signature
    verified; then COMMAND starts, its output and exit code untouched. A cold start's cache is published once the engine is ready.
    If anything of this fails, the engine starts cold. A checkpoint with a URL streams into a host buffer while the engine imports.
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
