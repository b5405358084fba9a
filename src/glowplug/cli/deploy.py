"""``glowplug deploy``: manifests for a model that starts fast, from its address. Options are those of ``deploy.wish``."""

from __future__ import annotations

import inspect
import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from glowplug.cli.app import App
from glowplug.cli.output import print_json
from glowplug.deploy.checks import check
from glowplug.deploy.commented import plain
from glowplug.deploy.design import settle
from glowplug.deploy.make import files, objects, stream
from glowplug.deploy.reading import read_options
from glowplug.deploy.wish import Option, Wish, options
from glowplug.deploy.write import write
from glowplug.errors import UsageError
from glowplug.plan.model import Model, read_config, read_model
from glowplug.printable import printable
from glowplug.units import count, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.cache.envelope import Json

app = App()

_EXAMPLES = """
Examples:

  glowplug deploy --target gpu --model s3://models/qwen3-32b --weights 65GB --instance p4d.24xlarge --store s3://caches/glowplug

  glowplug deploy --file deploy.yaml --output manifests/

  glowplug deploy --file deploy.yaml | kubectl apply -f -
"""
_TYPES: Mapping[str, Any] = {"text": str, "number": int, "switch": bool, "list": list[str], "map": list[str]}


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a function that takes ``**given`` one parameter for each option of a wish."""
    own = [parameter for parameter in inspect.signature(function, eval_str=True).parameters.values() if parameter.name != "given"]
    wished = [
        inspect.Parameter(option.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(option))
        for option in options()
    ]
    parameters = [*wished, *own]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _annotation(option: Option) -> Any:
    metavar = option.metavar or "|".join(option.choices) or None
    text = f"{option.help} Default: {option.default}." if option.default else option.help
    name = f"--{option.name}/--no-{option.name}" if option.kind == "switch" else f"--{option.name}"
    return Annotated[_TYPES[option.kind] | None, typer.Option(name, metavar=metavar, help=text)]


@app.command("deploy", epilog=_EXAMPLES)
@_with_options
def deploy(
    *,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same options as YAML, - for standard input; the command line wins.")
    ] = None,
    output: Annotated[str | None, typer.Option(metavar="FOLDER", help="Write files and a kustomization.yaml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the objects as a JSON list, or with --output what was written.")
    ] = False,
    **given: Any,
) -> None:
    """Write Kubernetes manifests for a model that starts fast: planned, commented, and the same for the same options."""
    stdin = sys.stdin.buffer if sys.stdin else io.BytesIO()  # None where it was closed before the start
    said = read_options(file, {name: _value(value) for name, value in given.items() if value not in (None, [])}, stdin)
    wish = Wish(**said)
    check(wish, said)
    _check_output(output, force=force, iac=bool(given.get("iac")), cluster=bool(given.get("cluster")) and wish.nodes == "none")
    design = settle(wish, _model(wish))
    if output is None:
        if as_json:
            print_json(cast("list[Json]", [plain(each) for each in objects(design)]))
        else:
            print(stream(design), end="")
        return
    made = files(design)
    others = write(Path(output), made, force=force)
    if as_json:
        print_json({"folder": output, "files": [each.path for each in made], "others": cast("list[Json]", others)})
        return
    print(f"{output}: {count(len(made), 'file')}")
    for each in made:
        print(f"  {each.path}")
    if others:
        print(f"Not written by this run: {', '.join(printable(each) for each in others)} (of an earlier one? then delete them)")
    print(f"Next: kubectl apply -k {shlex.quote(output)}")


def _check_output(output: str | None, *, force: bool, iac: bool, cluster: bool) -> None:
    """Options that mean nothing without a folder, and names that are none."""
    if output == "":
        raise UsageError("--output is empty", object="--output", hint="name a folder; . is the one that you are in")
    if output == "-":
        hint = "leave it out: without a folder the stream goes to standard output"
        raise UsageError("--output: - is no folder", object="--output", hint=hint)
    if output is not None:
        return
    if force:
        raise UsageError("--force: nothing is written to files", object="--force", hint="add --output FOLDER, or leave it out")
    if iac:
        raise UsageError("--iac: it is no manifest, and a stream holds nothing else", object="--iac", hint="add --output FOLDER")
    if cluster:
        hint = "add --output FOLDER or --nodes karpenter, or leave it out"
        raise UsageError("--cluster: without nodes only the files for roles name it", object="--cluster", hint=hint)


def _value(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _model(wish: Wish) -> Model:
    config = Path(wish.config) if wish.config else None
    if not wish.weights:
        return read_model(wish.model, env=os.environ)
    architecture = read_config(config) if config is not None else None
    return Model(name=wish.model, weight_bytes=parse_size(wish.weights, name="--weights"), architecture=architecture)
