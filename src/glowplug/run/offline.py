"""A command's cache without the command: what its envelope is, restore it ahead of time, capture it by hand.

The same steps as a supervised start, in the same order and with the same checks, but here a person waits, so errors are raised
instead of failing open.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.deadline import unbounded
from glowplug.cache.keyring import config_home, load_publishing, load_signer
from glowplug.cache.live import claim
from glowplug.cache.merge import Publication, Tree, publish_tree
from glowplug.cache.quarantine import choose, cleanse, noted, untrusted
from glowplug.cache.quarantine.traces import sources
from glowplug.cache.quarantine.verdicts import condemned
from glowplug.cache.repository import Repository
from glowplug.cache.restore import Restored, restore
from glowplug.cache.secrets import SecretScan
from glowplug.engines.registry import recognise
from glowplug.errors import LocalError, ObjectNotFound, UsageError
from glowplug.run.restoring import describe, store_for, trust_for
from glowplug.run.started import as_run_starts_it

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from glowplug.cache.envelope import Envelope
    from glowplug.engines.base import Launch
    from glowplug.run.options import RunOptions


def understand(options: RunOptions, argv: Sequence[str], env: Mapping[str, str]) -> tuple[Launch, Envelope, Path]:
    """A command as ``run`` would start it, its envelope, and the folder its live folder lies in.

    Raises:
        UsageError: no command, or one that its engine could not start with.
        LocalError: what belongs to the envelope could not be found out.
        GlowplugError: as ``as_run_starts_it``: a checkpoint that is streamed can't be read.
    """
    if not argv:
        raise UsageError("no command", object="COMMAND", hint="write it after --, exactly as glowplug run gets it")
    started = as_run_starts_it(argv, env, engine=options.engine)
    launch = recognise(started.argv, started.key_env, os.getcwd(), engine=options.engine)
    if launch.unsure:
        raise LocalError(launch.unsure, object=argv[0], hint="try again once this machine is less busy")
    envelope, base = describe(launch, options, env)
    return launch, envelope, base


def restore_ahead(
    options: RunOptions, argv: Sequence[str], env: Mapping[str, str], *, progress: Callable[[int, int], None]
) -> tuple[Restored, Path]:
    """Put the newest generation for a command into its live folder, where the next ``run`` on this node finds it.

    Args:
        options: store, cache folder and keys.
        argv: the command.
        env: the environment it will have.
        progress: told the bytes done since the last call, and the bytes in all.

    Raises:
        ObjectNotFound: nothing has been published for it that is not in quarantine.
        LocalError: the folder is in use by a running engine.
        GlowplugError: as ``cache.restore.restore`` and ``Repository.load``.
    """
    _, envelope, base = understand(options, argv, env)
    store = store_for(options, env)
    repository = Repository(store)
    pointer = repository.latest(envelope.digest)
    if pointer is None:
        raise ObjectNotFound(
            f"nothing has been published for envelope {envelope.digest[:12]}",
            object=envelope.digest,
            hint="glowplug cache explain tells why",
        )
    trust = trust_for(options, env)
    choice = choose(repository, envelope.digest, pointer, trust, live_base=base, deadline=unbounded("restore"))
    manifest = choice.manifest
    if manifest is None:
        raise ObjectNotFound(choice.reason, object=envelope.digest, hint="the next cold start publishes another")
    with claim(base, envelope.digest, slots=1) as live:
        cleanse(live.path, choice.bad | untrusted(live.path, trust))
        restored = restore(
            store,
            layout.pack_key(envelope.digest, manifest.pack.sha256),
            manifest,
            live.path,
            deadline=unbounded("restore"),
            progress=lambda done: progress(done, manifest.size_bytes),
        )
        return restored, live.path


def capture_by_hand(
    options: RunOptions, argv: Sequence[str], env: Mapping[str, str], *, progress: Callable[[int], None]
) -> tuple[Publication, Path]:
    """Publish what lies in a command's live folder, joined with the newest generation where that did not come from the folder.

    Raises:
        LocalError: there is nothing, it has held a bad generation, or the folder is in use by a running engine.
        GlowplugError: as ``cache.merge.publish_tree``; UsageError if there is no key to sign with.
    """
    launch, envelope, base = understand(options, argv, env)
    publishing = load_publishing(env, key=options.signing_key, keys=options.trusted_keys, home=config_home(env))
    if publishing.signer is None:
        raise UsageError(publishing.reason, object="--signing-key", hint="glowplug keys create makes a key")
    repository = Repository(store_for(options, env))
    with claim(base, envelope.digest, slots=1) as live:
        _refuse_tainted(live.path, noted(base) | condemned(repository.store, envelope.digest))
        known, doubted = sources(live.path), noted(base)
        tree = Tree(live.path, launch.families, launch.ranks, options.settle_s, known=known, doubted=doubted)
        published = publish_tree(
            repository,
            envelope,
            tree,
            publishing.signer,
            trust_for(options, env),
            may_displace=load_signer(env, key=options.signing_key) is not None,
            cold_start_s=None,
            scan_secrets=SecretScan(env),
            deadline=unbounded("publish"),
            progress=progress,
        )
        return published, live.path


def _refuse_tainted(live: Path, bad: frozenset[str]) -> None:
    """Stop before a bad generation's files are published again under another name."""
    held = [generation for generation in sources(live) if generation in bad]
    if held:
        raise LocalError(
            f"{live} has held generation {held[0][:12]}, which is in quarantine",
            object=str(live),
            hint="run the command once, which empties the folder, or glowplug cache quarantine --lift",
        )


def find_envelope(repository: Repository, prefix: str) -> str:
    """The one envelope in the store whose digest begins like this.

    Raises:
        ObjectNotFound: none does.
        UsageError: several do, or it is no hexadecimal prefix.
    """
    _check_prefix(prefix, "an envelope's")
    found = [shelf.envelope_digest for shelf in repository.shelves(prefix)]
    if not found:
        raise ObjectNotFound(f"no envelope {prefix} in {repository.store.url}", object=prefix, hint="glowplug cache ls lists them")
    if len(found) > 1:
        raise UsageError(f"{prefix} stands for {len(found)} envelopes", object=prefix, hint="write more digits")
    return found[0]


def find_generation(repository: Repository, envelope_digest: str, prefix: str | None) -> str:
    """The one generation of an envelope whose digest begins like this; the newest one for None.

    Raises:
        ObjectNotFound: none.
        UsageError: several begin so, or it is no hexadecimal prefix.
    """
    if prefix is None:
        pointer = repository.latest(envelope_digest)
        if pointer is None:
            raise ObjectNotFound(f"envelope {envelope_digest[:12]} has no published generation", object=envelope_digest)
        return pointer.generation
    _check_prefix(prefix, "a generation's")
    found = [
        stored.digest
        for shelf in repository.shelves(envelope_digest)
        for stored in shelf.generations
        if stored.digest.startswith(prefix)
    ]
    if not found:
        raise ObjectNotFound(
            f"envelope {envelope_digest[:12]} has no generation {prefix}", object=prefix, hint="glowplug cache verify lists them"
        )
    if len(found) > 1:
        raise UsageError(f"{prefix} stands for {len(found)} generations", object=prefix, hint="write more digits")
    return found[0]


def _check_prefix(prefix: str, whose: str) -> None:
    if not prefix or not all(letter in "0123456789abcdef" for letter in prefix):  # an empty one is a variable that is not set
        hint = "glowplug cache ls and glowplug cache verify list them"
        raise UsageError(f"{prefix!r} is not the beginning of {whose} digest", object=prefix, hint=hint)
