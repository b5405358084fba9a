"""Options and arguments that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StoreUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="GLOWPLUG_STORE",
        help="The store: s3://bucket/prefix or file:///folder. Default: a folder of your own, ~/.cache/glowplug/store.",
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        envvar="GLOWPLUG_CACHE_DIR",
        readable=False,  # a folder that can't be used is no usage error: the engine starts cold
        help="Live caches, on this node's own disk. Default: $XDG_CACHE_HOME/glowplug/live, else /var/tmp/glowplug-UID.",
    ),
]
SigningKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Private key that signs: a PEM file, PEM text or awskms:ARN. Default: $GLOWPLUG_SIGNING_KEY, else your own key.",
    ),
]
TrustedKeys = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEYS",
        help="Public keys whose signatures count: files, folders, PEM text or awskms:ARN; repeatable."
        " Default: $GLOWPLUG_TRUSTED_KEYS, else the key that signs here.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="vllm|generic", envvar="GLOWPLUG_ENGINE", help="What COMMAND is. Default: vllm if it looks like one, else generic."
    ),
]
Uri = Annotated[str, typer.Argument(metavar="URI", help="The checkpoint: s3://bucket/prefix, https://..., file:///... or a path.")]
Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG]...", help="The engine's command, as glowplug run gets it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
