"""``glowplug cache explain``: why a start misses, against the store, another pod's report, or one envelope."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache.deadline import Deadline
from glowplug.cache.explain.neighbours import neighbours
from glowplug.cache.explain.text import one_line, shortened, values
from glowplug.cache.live import live_folder
from glowplug.cache.repository import Repository
from glowplug.cli.options import AsJson, CacheDir, Engine, StoreUrl, TrustedKeys
from glowplug.cli.output import print_json
from glowplug.engines.knowledge import known_causes
from glowplug.errors import GlowplugError, UsageError
from glowplug.printable import printable
from glowplug.run.console import terminal_width
from glowplug.run.offline import understand
from glowplug.run.options import RunOptions
from glowplug.run.restoring import store_for, trust_for
from glowplug.run.sides import Comparison, Side, compare_sides, side_from_file, side_from_text, with_record
from glowplug.units import count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from glowplug.cache.envelope import Json
    from glowplug.cache.explain.causes import Cause
    from glowplug.cache.explain.neighbours import Neighbour
    from glowplug.engines.base import Launch, Poisoner

_LOOK_S = 60.0
_SHOWN = 3

EPILOG = """
Examples:

  glowplug cache explain -- vllm serve Qwen/Qwen3-8B

  glowplug cache explain --report pod-b.json --against pod-a.json
"""


def explain(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND [ARG]...]", help="The engine's command, as glowplug run gets it.")
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead of COMMAND: what glowplug run --report or glowplug cache key --json wrote."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="ENVELOPE|FILE",
            help="What to compare with: the beginning of an envelope's digest, or another start's report. Default: the nearest.",
        ),
    ] = None,
    store: StoreUrl = None,
    cache_dir: CacheDir = None,
    trusted_keys: TrustedKeys = None,
    engine: Engine = None,
    as_json: AsJson = False,
) -> None:
    """Say why a start misses. Names what differs from the nearest cache, likely accidents first, and what to do about it."""
    options = RunOptions(store=store, cache_dir=cache_dir, engine=engine, trusted_keys=tuple(trusted_keys or ()))
    if bool(command) == (report is not None):
        hint = "write the command after --, or name a start's report with --report FILE"
        raise UsageError("give either a command or --report" if command else "nothing to explain", object="COMMAND", hint=hint)
    launch, base = None, Path()
    if report is not None:
        ours = side_from_file(report)
    else:
        launch, envelope, base = understand(options, command or [], os.environ)
        ours = Side(envelope, "this command", _record(launch, live_folder(base, envelope.digest)))
    poisoners = launch.poisoners if launch else ()
    if against is not None:
        repository = Repository(store_for(options, os.environ))
        theirs = side_from_text(against, repository)
        if theirs.record is None and ours.record is not None:
            theirs = with_record(theirs, repository, trust_for(options, os.environ), deadline=Deadline(_LOOK_S, step="explain"))
        comparison = compare_sides(ours, theirs)
        if as_json:
            print_json({**_head(ours, poisoners), "against": {"envelope": theirs.envelope.digest, **_compared(comparison)}})
        else:
            _print_comparison(ours, theirs, comparison)
            _print_poisoners(poisoners)
        return
    found = neighbours(
        store_for(options, os.environ), ours.envelope, deadline=Deadline(_LOOK_S, step="explain"), known=known_causes(ours.engine)
    )
    state = _state(options, ours, launch, base)
    if as_json:
        print_json({**_head(ours, poisoners), "state": state, "neighbours": [_neighbour(each) for each in found]})
    else:
        _print_neighbours(ours, state, found)
        _print_poisoners(poisoners)


def _record(launch: Launch, live: Path) -> Json:
    """What the last start on this node recorded."""
    record = launch.key_record(live, ())
    return None if record is None else dict(record)


def _state(options: RunOptions, ours: Side, launch: Launch | None, base: Path) -> str:
    """What a start with this very envelope would find, and, if one has found it and not used it, why."""
    digest = ours.envelope.digest
    repository = Repository(store_for(options, os.environ))
    try:
        pointer = repository.latest(digest)
        if pointer is None:
            return "nothing is published for it"
        manifest = repository.load(digest, pointer.generation, trust_for(options, os.environ))
    except GlowplugError as error:
        return f"a start would not use what is published for it: {error.line()}"
    why = ""
    if launch is not None:
        why = launch.explain_miss(live_folder(base, digest), {file.path for file in manifest.files})
    return f"a start would find generation {manifest.digest[:12]}" + (f"; the last one here did not use it: {why}" if why else "")


# --- for programs


def _head(ours: Side, poisoners: Sequence[Poisoner]) -> dict[str, Json]:
    return {
        "envelope": ours.envelope.digest,
        "poisoners": [
            {
                "name": poisoner.name,
                "value": poisoner.value,
                "severity": poisoner.severity,
                "seen_by": poisoner.seen_by,
                "what": poisoner.what,
                "remedy": poisoner.remedy,
            }
            for poisoner in poisoners
        ],
    }


def _neighbour(neighbour: Neighbour) -> Json:
    return {
        "envelope": neighbour.digest,
        "published_s": neighbour.published_s,
        "distance": round(neighbour.distance, 3),
        "near": neighbour.is_near,
        "causes": _causes(neighbour.causes),
    }


def _compared(comparison: Comparison) -> dict[str, Json]:
    key: Json = _causes(comparison.factors) if comparison.recorded else None
    return {"causes": _causes(comparison.causes), "engine_key": key}


def _causes(causes: Iterable[Cause]) -> Json:
    return [
        {
            "path": cause.path,
            "ours": cause.ours,
            "theirs": cause.theirs,
            "kind": cause.kind,
            "likelihood": cause.likelihood,
            "what": cause.what,
            "fix": cause.fix,
            "followers": [{"path": item.path, "ours": item.ours, "theirs": item.theirs} for item in cause.followers],
        }
        for cause in causes
    ]


# --- for people


def _print_neighbours(ours: Side, state: str, found: Sequence[Neighbour]) -> None:
    _print(f"{ours.name}: envelope {ours.envelope.digest[:12]}, {ours.title}; {state}")
    if not found:
        print("the store holds no other to compare it with")
        return
    first, *others = found
    age = format_seconds(max(0.0, time.time() - first.published_s))
    print(f"\nnearest: {first.digest[:12]}, published {age} ago, differs in {count(len(first.causes), 'thing')}:")
    _print_causes(first.causes)
    for other in others:
        _print(f"\nnext: {other.digest[:12]} differs in {len(other.causes)}: {', '.join(map(one_line, other.causes[:_SHOWN]))}")


def _print_comparison(ours: Side, theirs: Side, comparison: Comparison) -> None:
    for where, side in (("here", ours), ("there", theirs)):
        _print(f"{where:<5}  {side.name}: envelope {side.envelope.digest[:12]}, {side.title}")
    if comparison.causes:
        print(f"\nThe envelopes differ in {count(len(comparison.causes), 'thing')}:")
        _print_causes(comparison.causes)
    else:
        print("\nThe envelopes are equal: these two starts share a cache.")
    if comparison.factors:
        print(f"\nThe engine's own keys differ in {count(len(comparison.factors), 'thing')}:")
        _print_causes(comparison.factors)
    elif comparison.recorded:
        print("The engine recorded equal keys for both.")


def _print_causes(causes: Iterable[Cause]) -> None:
    width = terminal_width(1)
    for cause in causes:
        path = shortened(cause.path, width - 24)
        print(f"\n  {path}{cause.in_words:>{max(1, width - 2 - len(path))}}")
        for where, value in zip(("here", "there"), values(cause, width - 11), strict=True):
            print(f"    {where:<5}  {value}")
        _print(f"{cause.what}", indent=4)
        _print(f"fix: {cause.fix}", indent=4)
        if cause.followers:
            names = [item.path for item in cause.followers]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            _print(f"with it: {', '.join(names[:_SHOWN])}{more}", indent=4)


def _print_poisoners(poisoners: Sequence[Poisoner]) -> None:
    if not poisoners:
        return
    print("\nSettings that keep starts from sharing a cache unless all have the same:")
    for poisoner in poisoners:
        print()
        _print(f"{poisoner.severity}: {poisoner.name}={shortened(poisoner.value, 60)}", indent=2)
        sees = "a start with another value misses" if poisoner.seen_by == "both" else "the engine alone sees it: restored, not used"
        _print(f"{poisoner.what}; {sees}", indent=4)
        _print(f"fix: {poisoner.remedy}", indent=4)


def _print(text: str, indent: int = 0) -> None:
    """A paragraph within the terminal's width; a word that is longer stays whole."""
    begin = "\n" if text.startswith("\n") else ""
    lines = textwrap.wrap(
        printable(text.strip()),
        terminal_width(1),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    print(begin + "\n".join(lines))
