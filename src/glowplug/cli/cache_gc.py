"""``glowplug cache gc``: remove what nobody needs from a store of compile caches."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache import layout
from glowplug.cache.deadline import unbounded
from glowplug.cache.gc import KEEP, Limits, plan, store_now_s
from glowplug.cache.quarantine.judging import judge_all
from glowplug.cache.repository import Repository
from glowplug.cache.sweep import sweep
from glowplug.cli.options import AsJson, StoreUrl, TrustedKeys
from glowplug.cli.output import print_json, print_table
from glowplug.errors import Forbidden, ObjectNotFound, UsageError
from glowplug.run.options import RunOptions
from glowplug.run.restoring import store_for, trust_for
from glowplug.units import count, format_bytes, format_seconds, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from glowplug.cache.gc import Removal
    from glowplug.store.base import Store

_MIN_AGE = "24h"

EPILOG = """
Examples:

  glowplug cache gc --store s3://bucket/glowplug --keep 1 --delete

  glowplug cache gc --store s3://bucket/glowplug --max-age 30d --max-bytes 200GB --delete

  glowplug cache gc --node /var/lib/glowplug --max-bytes 5GB --delete
"""


def gc(
    store: StoreUrl = None,
    keep: Annotated[int, typer.Option(metavar="N", help="Generations that each envelope keeps: the newest.")] = KEEP,
    min_age: Annotated[str, typer.Option(metavar="DURATION", help="Remove nothing that is younger than this.")] = _MIN_AGE,
    max_age: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Remove whole envelopes for which nothing was published for this long. Default: never."
        ),
    ] = "",
    max_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Remove whole envelopes, the longest untouched first, until the store holds no more than this. Default: no limit.",
        ),
    ] = "",
    node: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Clean a node's copies (glowplug run --node-store) instead of the store, down to --max-bytes, by default 20GB.",
        ),
    ] = None,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Really remove. Without --delete, what would be removed is only listed."),
    ] = False,
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Remove old generations and unused packs. A dry run unless --delete is given.

    What latest names stays, unless its whole envelope goes by --max-age or --max-bytes; so does an envelope that a start compiles
    for now. With --delete, the reports of readers are judged first. Safe beside starts that read and publish.
    """
    if node is not None:
        if (keep, min_age, max_age) != (KEEP, _MIN_AGE, ""):
            hint = "leave --keep, --min-age and --max-age away, or --node"
            raise UsageError("--node is cleaned down to --max-bytes, and by nothing else", object="--node", hint=hint)
        _collect_node(node, max_bytes, delete=delete, as_json=as_json)
        return
    options = RunOptions(store=store, trusted_keys=tuple(trusted_keys or ()))
    limits = Limits(
        keep=keep,
        grace_s=_age_s(min_age, name="--min-age"),
        max_age_s=_age_s(max_age, name="--max-age") if max_age else None,
        max_bytes=parse_bytes(max_bytes, name="--max-bytes") if max_bytes else None,
    )
    repository, trust = Repository(store_for(options, os.environ)), trust_for(options, os.environ)
    if next(iter(repository.store.list(layout.ROOT)), None) is None:
        url = repository.store.url
        raise ObjectNotFound(f"{url} holds no caches", object=url, hint="check --store, or wait for the first publication")
    condemned = judge_all(repository, trust, deadline=unbounded("gc")) if delete else []
    now_s = _now_s(repository.store) if delete else time.time()
    removals = list(plan(repository, trust, limits, now_s=now_s))
    if delete:
        removals = list(sweep(repository, removals, grace_s=limits.grace_s, now_s=now_s))
    size_bytes = sum(removal.size_bytes for removal in removals)
    if as_json:
        print_json({
            "deleted": delete,
            "bytes": size_bytes,
            "condemned": [{"envelope": verdict.envelope, "generation": verdict.generation} for verdict in condemned],
            "objects": [
                {
                    "envelope": removal.envelope_digest, "kind": removal.kind, "digest": removal.digest, "key": removal.key,
                    "bytes": removal.size_bytes, "age_s": round(removal.age_s), "reason": removal.reason,
                }
                for removal in removals
            ],
        })  # fmt: skip
        return
    for verdict in condemned:
        print(f"generation {verdict.generation[:12]} of envelope {verdict.envelope[:12]} is in quarantine from now on")
    _print(removals)
    _conclude(len(removals), size_bytes, delete=delete)


def _age_s(text: str, *, name: str) -> float:
    """Seconds. Whoever writes a bare number may mean days, and would lose what is older than so many seconds."""
    seconds = parse_seconds(text, name=name)
    if seconds and text.strip()[-1:].isdecimal():
        raise UsageError(f"{name} {text}: days, hours or seconds?", object=name, hint="write 30d, 24h or 30s")
    return seconds


def _collect_node(node: Path, max_bytes: str, *, delete: bool, as_json: bool) -> None:
    """The longest unused of a node's copies, until the rest fits."""
    from glowplug.cache.node_folder import DEFAULT_BYTES, NodeFolder  # noqa: PLC0415  only for --node

    if not node.is_dir():
        raise UsageError(f"--node: {node} is no folder", object="--node", hint="name the folder that run --node-store names")
    with contextlib.closing(NodeFolder(node.absolute())) as folder:
        files = folder.excess(parse_bytes(max_bytes, name="--max-bytes") if max_bytes else DEFAULT_BYTES)
        if delete:
            folder.evict(files)
    size_bytes = sum(file.size_bytes for file in files)
    ages = {file: max(0.0, time.time() - file.used_s) for file in files}
    if as_json:
        print_json({
            "deleted": delete,
            "bytes": size_bytes,
            "objects": [
                {"kind": file.kind, "name": file.name, "bytes": file.size_bytes, "unused_s": round(ages[file])} for file in files
            ],
        })  # fmt: skip
        return
    if files:
        rows = [[file.kind, file.name[:12], format_bytes(file.size_bytes), format_seconds(ages[file])] for file in files]
        print_table(["KIND", "DIGEST", "SIZE", "UNUSED"], rows)
    _conclude(len(files), size_bytes, delete=delete)


def _conclude(removed: int, size_bytes: int, *, delete: bool) -> None:
    verb = "removed" if delete else "would remove"
    hint = "" if delete or not removed else "; --delete removes them"
    print(f"{verb} {count(removed, 'object')}, {format_bytes(size_bytes)}{hint}")


def _now_s(store: Store) -> float:
    """The store's time; this machine's where the store may not be asked by writing."""
    try:
        return store_now_s(store)
    except Forbidden as error:
        print(f"glowplug: ages are by this machine's clock: {error.line()}", file=sys.stderr)
        return time.time()


def _print(removals: list[Removal]) -> None:
    if removals:
        print_table(
            ["ENVELOPE", "KIND", "DIGEST", "SIZE", "AGE", "REASON"],
            [
                [
                    removal.envelope_digest[:12], removal.kind, removal.digest[:12], format_bytes(removal.size_bytes),
                    format_seconds(removal.age_s), removal.reason,
                ]
                for removal in removals
            ],
        )  # fmt: skip
