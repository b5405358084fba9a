"""``glowplug doctor``: what in manifests makes a start slow, or keeps it from ending."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from glowplug.cli.output import print_json, print_table
from glowplug.doctor.checking import check_manifests
from glowplug.doctor.document import rules_to_json, to_json
from glowplug.doctor.reading import read
from glowplug.doctor.registry import all_rules, find_rule, manifest_rules
from glowplug.doctor.render import explain as explained
from glowplug.doctor.render import render
from glowplug.doctor.sarif import to_sarif
from glowplug.errors import UsageError
from glowplug.printable import printable

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EXAMPLES = """
Examples:

  glowplug doctor k8s/

  helm template llm ./chart | glowplug doctor -

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
    explain: Annotated[str | None, typer.Option(metavar="ID", help="Explain one rule, such as GP014.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code hosts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check Kubernetes manifests of engines: what makes a start slow or breaks it. Reads files, and no cluster."""
    if sarif and as_json:
        raise UsageError("--sarif and --json are two formats", object="--sarif", hint="choose one")
    if explain is not None or rules:
        if files or sarif:
            raise UsageError("--explain and --rules check no file", object="--explain", hint="leave the files and --sarif out")
        _tell(explain, as_json=as_json)
        return
    if not files:
        raise UsageError("there is nothing to check", object="FILE", hint="glowplug doctor k8s/, or glowplug doctor - for a pipe")
    checked = check_manifests(read(files, sys.stdin.buffer, recursive=recursive))
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
