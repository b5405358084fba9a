"""``glowplug cache``: look at, check and clean a store of compile caches."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache.quarantine.verdicts import verdict_on
from glowplug.cache.repository import Repository
from glowplug.cache.verify import verify_shelf
from glowplug.cli import cache_explain, cache_gc, cache_quarantine
from glowplug.cli.app import App
from glowplug.cli.options import AsJson, CacheDir, Command, Engine, SigningKey, StoreUrl, TrustedKeys
from glowplug.cli.output import print_json, print_table, progress_bar
from glowplug.errors import GlowplugError
from glowplug.printable import printable
from glowplug.run.offline import capture_by_hand, find_envelope, find_generation, restore_ahead, understand
from glowplug.run.options import RunOptions
from glowplug.run.restoring import store_for, trust_for
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.cache.repository import Shelf

app = App(no_args_is_help=True, help="Look at, check and clean a store of compile caches.")

_ENVELOPE = "The beginning of an envelope's digest, as glowplug cache ls prints it."
_GENERATION = "The beginning of a generation's digest."


def _repository(options: RunOptions) -> Repository:
    return Repository(store_for(options, os.environ))


@app.command(before_command=True, epilog="Example: glowplug cache key -- vllm serve Qwen/Qwen3-8B")
def key(command: Command, cache_dir: CacheDir = None, engine: Engine = None, as_json: AsJson = False) -> None:
    """Print a command's envelope. It holds all that must be equal for two starts to share a cache."""
    _, envelope, _ = understand(RunOptions(cache_dir=cache_dir, engine=engine), command, os.environ)
    if as_json:
        print_json({"envelope": envelope.digest, "components": dict(envelope.components)})
        return
    print(envelope.digest)
    for path, value in envelope.flat().items():
        print(printable(f"  {path} = {value}"))


@app.command(epilog="Example: glowplug cache ls --store s3://bucket/glowplug")
def ls(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the envelopes in a store."""
    repository = _repository(RunOptions(store=store))
    rows: list[list[str]] = []
    documents: list[Json] = []
    for shelf in repository.shelves():
        engine, model = _what(repository, shelf.envelope_digest)
        newest_s = max((stored.modified_s for stored in shelf.generations), default=0.0)
        documents.append(
            {
                "envelope": shelf.envelope_digest,
                "engine": engine,
                "model": model,
                "latest": shelf.latest.generation if shelf.latest else None,
                "generations": len(shelf.generations),
                "quarantined": len(_bad(shelf)),
                "bytes": shelf.size_bytes,
                "modified_s": newest_s,
            }
        )
        age = format_seconds(max(0.0, time.time() - newest_s)) if shelf.generations else "-"
        bad = f" ({len(_bad(shelf))} bad)" if _bad(shelf) else ""
        rows.append([
            shelf.envelope_digest[:12], f"{len(shelf.generations)}{bad}", format_bytes(shelf.size_bytes), age, engine, model,
        ])  # fmt: skip
    if as_json:
        print_json(documents)
    elif rows:
        print_table(["ENVELOPE", "GENERATIONS", "SIZE", "AGE", "ENGINE", "MODEL"], rows)
    else:
        print(f"{repository.store.url} holds no caches")


def _bad(shelf: Shelf) -> frozenset[str]:
    """Its generations that are in quarantine, as far as they are still there."""
    return shelf.bad.intersection(stored.digest for stored in shelf.generations)


def _what(repository: Repository, envelope_digest: str) -> tuple[str, str]:
    try:
        components = repository.envelope(envelope_digest).components
    except GlowplugError as error:
        return "?", error.message
    engine, model = components.get("engine"), components.get("model")
    name = " ".join(str(engine[field]) for field in ("name", "version") if engine.get(field)) if isinstance(engine, dict) else "?"
    return name, str(model.get("reference", "")) if isinstance(model, dict) else ""


@app.command(epilog="Example: glowplug cache show 3f9a2c --files")
def show(
    envelope: Annotated[str, typer.Argument(metavar="ENVELOPE", help=_ENVELOPE)],
    generation: Annotated[str | None, typer.Argument(metavar="[GENERATION]", help=f"{_GENERATION} Default: the newest.")] = None,
    store: StoreUrl = None,
    trusted_keys: TrustedKeys = None,
    files: Annotated[bool, typer.Option("--files", help="List the generation's files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one envelope and one of its generations."""
    options = RunOptions(store=store, trusted_keys=tuple(trusted_keys or ()))
    repository = _repository(options)
    digest = find_envelope(repository, envelope)
    chosen = find_generation(repository, digest, generation)
    manifest = repository.load(digest, chosen, trust_for(options, os.environ))
    verdict = verdict_on(repository.store, digest, chosen)
    if as_json:
        print_json(
            {
                "envelope": digest,
                "components": dict(manifest.envelope.components),
                "generation": chosen,
                "quarantine": verdict.reason if verdict else None,
                "created_at": manifest.created_at,
                "producer": manifest.producer,
                "cold_start_s": manifest.cold_start_s,
                "bytes": manifest.size_bytes,
                "pack": {"sha256": manifest.pack.sha256, "bytes": manifest.pack.size_bytes},
                "files": [{"path": file.path, "bytes": file.size_bytes, "sha256": file.sha256} for file in manifest.files],
            }
        )
        return
    print(f"envelope    {digest}")
    for path, value in manifest.envelope.flat().items():
        print(printable(f"  {path} = {value}"))
    print(f"generation  {chosen}")
    if verdict is not None:
        print(f"  in quarantine: {verdict.reason}")
    print(printable(f"  created {manifest.created_at} by {manifest.producer}"))
    packed = format_bytes(manifest.pack.size_bytes)
    print(f"  {count(len(manifest.files), 'file')}, {format_bytes(manifest.size_bytes)}, pack of {packed}")
    if manifest.cold_start_s is not None:
        print(f"  a start without it took {format_seconds(manifest.cold_start_s)}")
    if files:
        print_table(["SIZE", "PATH"], [[format_bytes(file.size_bytes), file.path] for file in manifest.files])


@app.command(before_command=True, epilog="Example: glowplug cache restore -- vllm serve Qwen/Qwen3-8B")
def restore(
    command: Command,
    store: StoreUrl = None,
    cache_dir: CacheDir = None,
    trusted_keys: TrustedKeys = None,
    engine: Engine = None,
    as_json: AsJson = False,
) -> None:
    """Restore a command's cache ahead of time. The next glowplug run of it on this node finds it in place."""
    options = RunOptions(store=store, cache_dir=cache_dir, trusted_keys=tuple(trusted_keys or ()), engine=engine)
    with progress_bar("restoring") as progress:
        restored, path = restore_ahead(options, command, os.environ, progress=lambda done, _: progress(done))
    if as_json:
        print_json({
            "generation": restored.generation, "files": restored.files, "bytes": restored.bytes, "fetched": restored.fetched,
            "root": str(path),
        })  # fmt: skip
    else:
        verb = "restored" if restored.fetched else "already there:"
        print(
            f"{verb} generation {restored.generation[:12]}: {count(restored.files, 'file')},"
            f" {format_bytes(restored.bytes)} in {path}"
        )


@app.command(before_command=True, epilog="Example: glowplug cache capture -- vllm serve Qwen/Qwen3-8B")
def capture(
    command: Command,
    store: StoreUrl = None,
    cache_dir: CacheDir = None,
    signing_key: SigningKey = None,
    engine: Engine = None,
    as_json: AsJson = False,
) -> None:
    """Publish what a command has compiled. What an earlier glowplug run left on this node is joined with the newest generation.

    Exit code 1 also if another publisher was quicker: its generation is then the newest.
    """
    # Nobody writes there, for the lock on it is ours, so nothing has to settle.
    options = RunOptions(store=store, cache_dir=cache_dir, signing_key=signing_key, engine=engine, settle_s=0.0)
    with progress_bar("packing") as progress:
        ended, path = capture_by_hand(options, command, os.environ, progress=progress)
    manifest, published = ended.manifest, ended.state in {"published", "joined"}
    if as_json:
        print_json({
            "generation": manifest.digest, "published": published, "state": ended.state, "files": len(manifest.files),
            "bytes": manifest.size_bytes,
            "pack_bytes": manifest.pack.size_bytes, "root": str(path),
        })  # fmt: skip
    elif published:
        also = ", joined with the newest one before it" if ended.state == "joined" else ""
        size = f"{count(len(manifest.files), 'file')}, {format_bytes(manifest.size_bytes)}"
        print(f"published generation {manifest.digest[:12]}: {size}, from {path}{also}")
    elif ended.state == "contained":
        print(f"nothing new in {path}: generation {manifest.digest[:12]} has all of it")
    else:
        print("other publishers were quicker; theirs is the newest generation")
    if ended.state == "overtaken":
        raise typer.Exit(1)


app.command("explain", before_command=True, epilog=cache_explain.EPILOG)(cache_explain.explain)


@app.command(epilog="Example: glowplug cache verify --store s3://bucket/glowplug")
def verify(
    envelope: Annotated[str | None, typer.Argument(metavar="[ENVELOPE]", help=f"{_ENVELOPE} Default: all.")] = None,
    store: StoreUrl = None,
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Check every generation to its last byte. From the signature to the pack, and the pointer to the newest.

    Exit code 1 if any is bad.
    """
    options = RunOptions(store=store, trusted_keys=tuple(trusted_keys or ()))
    repository = _repository(options)
    trust = trust_for(options, os.environ)
    prefix = find_envelope(repository, envelope) if envelope else ""
    shelves = list(repository.shelves(prefix))
    bad = {(shelf.envelope_digest, generation) for shelf in shelves for generation in shelf.bad}
    with progress_bar("verifying") as progress:
        findings = [finding for shelf in shelves for finding in verify_shelf(repository, shelf, trust, progress=progress)]
    if as_json:
        print_json([
            {
                "envelope": finding.envelope_digest, "generation": finding.generation, "files": finding.files,
                "bytes": finding.size_bytes, "problem": finding.problem,
                "quarantined": (finding.envelope_digest, finding.generation) in bad,
            }
            for finding in findings
        ])  # fmt: skip
    elif findings:
        print_table(
            ["ENVELOPE", "GENERATION", "FILES", "SIZE", "RESULT"],
            [
                [
                    finding.envelope_digest[:12], finding.generation[:12], str(finding.files), format_bytes(finding.size_bytes),
                    finding.problem
                    or ("good, but in quarantine" if (finding.envelope_digest, finding.generation) in bad else "good"),
                ]
                for finding in findings
            ],
        )  # fmt: skip
    else:
        print(f"{repository.store.url} holds no caches")
    if any(finding.problem for finding in findings):
        raise typer.Exit(1)


app.command("gc", epilog=cache_gc.EPILOG)(cache_gc.gc)
app.command("quarantine", epilog=cache_quarantine.EPILOG)(cache_quarantine.quarantine)
