"""``glowplug weights inspect``: what a checkpoint holds, from its listing and its headers."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(epilog="Example: glowplug weights inspect s3://bucket/models/qwen3-8b")
def inspect(
    uri: Annotated[str, typer.Argument(metavar="URI", help="s3://bucket/prefix, https://..., file:///... or a path.")],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a checkpoint holds. Reads its listing and the headers of its files, and no weight."""
    del uri, tensors, as_json
