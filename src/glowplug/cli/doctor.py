"""``glowplug doctor``: what in manifests, or on this machine, makes a start slow, or keeps it from ending."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.output import print_json, print_table
from glowplug.doctor.checking import check_manifests, check_node
from glowplug.doctor.document import rules_to_json, to_json
from glowplug.doctor.node.registry import node_rules
from glowplug.doctor.reading import read
from glowplug.doctor.registry import all_rules, find_rule, manifest_rules
from glowplug.doctor.render import explain as explained
from glowplug.doctor.render import render
from glowplug.doctor.sarif import to_sarif
from glowplug.errors import UsageError
from glowplug.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EXAMPLES = """
Examples:

  glowplug doctor k8s/

  helm template llm ./chart | glowplug doctor -

  glowplug doctor --node --store s3://bucket/glowplug

  glowplug doctor --explain GP014
"""


@app.command("doctor", epilog=_EXAMPLES)
def doctor(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE|FOLDER|-]...", help="Manifests, YAML or JSON; - is standard input.")
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="Look into folders below a folder, too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List what was passed over, and what was ignored.")] = False,
    node: Annotated[bool, typer.Option("--node", help="Check the machine that this runs on, instead of files.")] = False,
    cache_dir: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="With --node: the cache folder. Default: as for glowplug run.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="With --node: the store to reach. Default: GLOWPLUG_STORE, or none.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="URI", help="With --node: the model to reach; a part of it is read, for its speed.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="TYPE", help="With --node: what the machine should be, such as p5.48xlarge.")
    ] = None,
    explain: Annotated[str | None, typer.Option(metavar="ID", help="Explain one rule, such as GP014.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code hosts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check Kubernetes manifests of engines, or this machine: what makes a start slow or breaks it. Asks no cluster."""
    wish = {"cache_dir": cache_dir, "store": store, "model": model, "instance": instance}
    tells = explain is not None or rules
    _refuse_mixtures(
        files=bool(files), tells=tells, node=node, sarif=sarif, as_json=as_json, about_files=recursive or verbose, wish=wish
    )
    if tells:
        _tell(explain, as_json=as_json)
        return
    if node:
        _check_node(wish, strict=strict, sarif=sarif, as_json=as_json)
    if not files:
        raise UsageError("there is nothing to check", object="FILE", hint="glowplug doctor k8s/, or glowplug doctor - for a pipe")
    stdin = sys.stdin.buffer if sys.stdin else io.BytesIO()  # None where it was closed before the start
    checked = check_manifests(read(files, stdin, recursive=recursive))
    for each in checked.bad:
        place = f"{each.file}:{each.line}" if each.line else each.file
        print(f"glowplug: {printable(f'{place}: {each.problem}')}\n  hint: {printable(each.hint)}", file=sys.stderr)
    if sarif:
        print_json(to_sarif(checked, manifest_rules()))
    elif as_json:
        print_json(to_json(checked))
    else:
        print(render(checked, verbose=verbose), end="")
    raise typer.Exit(checked.exit_code(strict=strict))


def _refuse_mixtures(
    *, files: bool, tells: bool, node: bool, sarif: bool, as_json: bool, about_files: bool, wish: Mapping[str, str | None]
) -> None:
    """Options that mean nothing together."""
    stray = next((f"--{name.replace('_', '-')}" for name, value in wish.items() if value is not None), "")
    if sarif and as_json:
        raise UsageError("--sarif and --json are two formats", object="--sarif", hint="choose one")
    if stray and not node:
        raise UsageError(f"{stray} is about a machine", object=stray, hint="add --node to check the one that this runs on")
    if tells and (files or sarif or node):
        hint = "leave the files, --node and --sarif out"
        raise UsageError("--explain and --rules check nothing", object="--explain", hint=hint)
    if node and (files or about_files):
        hint = "run it twice: once with the files, once with --node"
        raise UsageError("--node checks this machine, and reads no file", object="--node", hint=hint)


def _check_node(wish: Mapping[str, str | None], *, strict: bool, sarif: bool, as_json: bool) -> None:
    from glowplug.doctor.node.document import to_json as node_to_json  # noqa: PLC0415  who checks files needs none of it
    from glowplug.doctor.node.probe import Wish, probe  # noqa: PLC0415  the same
    from glowplug.doctor.node.render import render as render_node  # noqa: PLC0415  the same

    facts = probe(Wish.over(wish, os.environ), env=os.environ)
    checked = check_node(facts)
    if sarif:
        print_json(to_sarif(checked, node_rules()))
    elif as_json:
        print_json(node_to_json(facts, checked))
    else:
        print(render_node(facts, checked), end="")
    raise typer.Exit(checked.exit_code(strict=strict))


def _tell(name: str | None, *, as_json: bool) -> None:
    if name is None:
        chosen = list(all_rules().values())
        if as_json:
            print_json(rules_to_json(chosen))
        else:
            print_table(("ID", "SEVERITY", "TITLE"), [(rule.id, rule.severity, rule.title) for rule in chosen])
        return
    rule = find_rule(name)
    if as_json:
        print_json(rules_to_json([rule])[0])
    else:
        print(explained(rule), end="")
