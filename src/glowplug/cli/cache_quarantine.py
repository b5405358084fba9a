"""``glowplug cache quarantine``: which generations nobody may use, and a person's own verdict."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache.live import default_base
from glowplug.cache.quarantine import drop_note
from glowplug.cache.quarantine.testimony import now
from glowplug.cache.quarantine.verdicts import Verdict, acquit, condemn, condemned, verdict_on
from glowplug.cache.repository import Repository
from glowplug.cli.options import AsJson, CacheDir, StoreUrl
from glowplug.cli.output import print_json, print_table
from glowplug.errors import ObjectNotFound, UsageError
from glowplug.run.offline import find_envelope, find_generation
from glowplug.run.options import RunOptions
from glowplug.run.restoring import store_for

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.cache.envelope import Json

EPILOG = """
Examples:

  glowplug cache quarantine 3f9a2c

  glowplug cache quarantine 3f9a2c 8b9264 --reason "wrong results on H200"

  glowplug cache quarantine 3f9a2c --lift
"""


def quarantine(
    envelope: Annotated[
        str, typer.Argument(metavar="ENVELOPE", help="The beginning of an envelope's digest, as glowplug cache ls prints it.")
    ],
    generation: Annotated[
        str | None,
        typer.Argument(metavar="[GENERATION]", help="The beginning of a generation's digest: put it into quarantine, or lift it."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it is put there, for whoever looks at it later.")] = "",
    lift: Annotated[
        bool,
        typer.Option("--lift", help="Let GENERATION be used again, without one all of ENVELOPE; forget what nodes reported."),
    ] = False,
    store: StoreUrl = None,
    cache_dir: CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """List, set or lift the quarantine of generations. No start uses one that is in it.

    Writers put a generation there when engines of two nodes have died of it or could not use it, or when its signature or content
    is wrong. --lift needs the right to delete (the janitor's). It also removes this node's own note; other nodes keep theirs until
    .glowplug-bad beside their live folders is deleted.
    """
    if reason and (lift or generation is None):
        raise UsageError("--reason belongs to a generation that is put into quarantine", object="--reason")
    repository = Repository(store_for(RunOptions(store=store), os.environ))
    digest = find_envelope(repository, envelope)
    if lift:
        changed = _lift(repository, digest, generation, cache_dir)
    elif generation is not None:
        chosen = find_generation(repository, digest, generation)
        verdict = Verdict(envelope=digest, generation=chosen, reason=reason or "put there by hand", by="hand", at=now())
        changed = [chosen] if condemn(repository.store, verdict) else []
    else:
        changed = []
    looked_up = [verdict_on(repository.store, digest, bad) for bad in sorted(condemned(repository.store, digest))]
    verdicts = [entry for entry in looked_up if entry is not None]
    if as_json:
        print_json({"envelope": digest, "changed": list(changed), "generations": [_document(verdict) for verdict in verdicts]})
        return
    for one in changed:
        print(f"generation {one[:12]} is {'used again' if lift else 'not used any more'}")
    if verdicts:
        rows = [[verdict.generation[:12], verdict.at or "-", verdict.by, verdict.reason] for verdict in verdicts]
        print_table(["GENERATION", "SINCE", "BY", "REASON"], rows)
    elif not changed:
        print(f"no generation of envelope {digest[:12]} is in quarantine")


def _lift(repository: Repository, envelope: str, prefix: str | None, cache_dir: Path | None) -> list[str]:
    """Lift one verdict, or all. Raises ObjectNotFound if there is none such."""
    found = [bad for bad in sorted(condemned(repository.store, envelope)) if bad.startswith(prefix or "")]
    if not found and prefix:
        hint = f"glowplug cache quarantine {envelope[:12]} lists them"
        raise ObjectNotFound(f"no generation {prefix} of envelope {envelope[:12]} is in quarantine", object=prefix, hint=hint)
    if prefix and len(found) > 1:
        raise UsageError(f"{prefix} stands for {len(found)} generations", object=prefix, hint="write more digits")
    for generation in found:
        acquit(repository.store, envelope, generation)
        drop_note(cache_dir or default_base(os.environ), generation)
    return found


def _document(verdict: Verdict) -> Json:
    return {
        "generation": verdict.generation,
        "reason": verdict.reason,
        "by": verdict.by,
        "at": verdict.at,
        "evidence": list(verdict.evidence),
    }
