"""``glowplug inject``: write a folder that runs Glowplug beside an engine in an unmodified image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.options import AsJson
from glowplug.cli.output import print_json, progress_bar
from glowplug.inject.folder import inject as write
from glowplug.units import format_bytes

app = App()


_EXAMPLES = """
Examples:

  glowplug inject /shared/glowplug

  /shared/glowplug/bin/glowplug run -- vllm serve MODEL
"""


@app.command(epilog=_EXAMPLES)
def inject(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; made if missing. May be the mount point of a volume.")],
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH|none",
            help="The Python that it carries. none: it looks for one in PATH when it runs. Default: the running one.",
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also write into a folder that holds other files, and leave those alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a folder that runs Glowplug beside an engine in an unmodified image.

    It carries Glowplug, what Glowplug needs, and a Python of its own where this one can be moved. It may be moved or mounted
    anywhere; an init container writes it into a volume that the engine's container mounts. Where it can't start, the engine starts
    without it.
    """
    carry = python != "none"
    with progress_bar(f"writing {folder}") as progress:
        injected = write(folder, python=Path(python) if python and carry else None, carry=carry, force=force, progress=progress)
    if as_json:
        print_json(injected.to_json())
        return
    facts = injected.facts
    carried = f"Python {facts.python}" if facts.python else f"no Python: {facts.reason}"
    state = "is there already" if injected.unchanged else "written"
    print(f"{folder}: {state}, Glowplug {facts.version} with {carried}")
    print(f"  size   {format_bytes(facts.bytes)} in {facts.files} files")
    print(f"  needs  /bin/sh, {facts.needs}")
    if facts.python:
        print(f"         (not musl images such as Alpine, no other machine than {facts.machine})")
    print(f"  use    {folder}/bin/glowplug run -- COMMAND")
