"""The steps before the engine is spawned: envelope, live folder, look-up, restore. All of them fail open.

Whatever goes wrong here ends in a ``Prepared`` that says so and an engine that starts cold. Only usage errors leave this module:
they are raised before anything has happened.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from glowplug.cache import layout
from glowplug.cache.envelope import Envelope
from glowplug.cache.families import environment
from glowplug.cache.keyring import config_home, load_trust
from glowplug.cache.live import LiveRoot, claim, default_base
from glowplug.cache.quarantine import choose, cleanse, noted, untrusted
from glowplug.cache.restore import Restored, restore
from glowplug.cache.tree import TreeFile, scan
from glowplug.cache.usage import age_access_times
from glowplug.engines.base import HttpReadiness
from glowplug.errors import DeadlineExceeded, GlowplugError, IntegrityError, LocalError, ObjectNotFound, UnknownKey
from glowplug.store import open_store
from glowplug.timeline.outcome import Lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.envelope import Json
    from glowplug.cache.keyring import NamedSigner
    from glowplug.cache.manifest import Manifest
    from glowplug.cache.repository import Pointer, Repository
    from glowplug.cache.trust import Trust
    from glowplug.engines.base import Launch
    from glowplug.run.flight import Flight
    from glowplug.run.identity import Identity
    from glowplug.run.options import RunOptions
    from glowplug.store.base import Store


class Pace(Protocol):
    """Is told how a restore goes on."""

    def found(self, manifest: Manifest) -> None:
        """This generation will be restored."""
        ...

    def progress(self, count: int) -> None:
        """So many unpacked bytes have been written since the last call. Called from several threads."""
        ...

    def in_use(self) -> bool:
        """Whether an engine may be using the live folder; asked when all is staged. May raise to call the restore off."""
        ...


class Late(Protocol):
    """A restore that may go on while the engine starts."""

    def settle(self, prepared: Prepared) -> Prepared:
        """As ``Prepared.settled``."""
        ...

    def then(self, step: Callable[[], None]) -> None:
        """Do something once the restore has ended, in its thread; at once if it has. ``step`` must not raise."""
        ...


@dataclass(frozen=True, slots=True)
class Search:
    """What the store had for this start.

    Attributes:
        lookup: how the search ended, for the report.
        pointer: what ``latest`` said, if it could be read; a publication replaces exactly this.
        manifest: of the restored generation.
        restored: what the restore brought.
        may_publish: False where a publication would not help or not be right; the look-up's reason says why.
        broken: digest of a generation whose signature or content was wrong; empty if none was.
        timed_out: the store had no answer in time, so it is not known what it has.
    """

    lookup: Lookup
    pointer: Pointer | None = None
    manifest: Manifest | None = None
    restored: Restored | None = None
    may_publish: bool = True
    broken: str = ""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is known when the engine is spawned.

    Attributes:
        launch: the command, understood.
        envelope: for which starts its cache is good; None if it could not be computed.
        live: the live folder; None if there is none, and then the engine's own settings are left alone.
        search: what the store had.
        before: compiled files in the live folder before the engine started, by path, restored or from an earlier start.
        store_url: the store, for messages.
        repository: the store, if it could be opened.
        identity: what this start may do to the store; None where the cache takes no part.
        late: the restore, where the engine is spawned while it goes on; ``settled`` ends it.
        flight: the lease of a start that compiles for others; ``Flight.finish`` gives it back.
        lost_s: seconds that an attempt took which died of the cache, before this one.
    """

    launch: Launch
    envelope: Envelope | None = None
    live: LiveRoot | None = None
    search: Search = field(default_factory=lambda: Search(Lookup("off", "the cache is turned off"), may_publish=False))
    before: Mapping[str, TreeFile] = field(default_factory=dict)
    store_url: str = ""
    repository: Repository | None = None
    identity: Identity | None = None
    late: Late | None = None
    flight: Flight | None = None
    lost_s: float = 0.0

    def settled(self) -> Prepared:
        """The same with all that is known by now: how a late restore has ended, and what it brought.

        Call it when the engine is ready or has ended, before looking at ``search``, ``before`` or ``flight``. What is still under
        way is called off; blocks for at most a second.
        """
        return self if self.late is None else self.late.settle(self)

    def close(self) -> None:
        """The start is over: give the lease back, and the live folder. May be called twice; blocks for at most 3 s."""
        settled = self.settled()
        if settled.flight is not None:
            settled.flight.abandon()
        if self.live is not None:
            self.live.close()

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """What the engine gets: its own environment, the cache variables, and no private key of ours."""
        child = {name: value for name, value in env.items() if name != "GLOWPLUG_SIGNING_KEY"}
        if self.live is not None:
            child |= environment(self.launch.families, self.live.path)
        return child


def default_store(env: Mapping[str, str]) -> str:
    """The user's own store, in their cache folder, as a ``file://`` URL."""
    base = env.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return f"file://{base}/glowplug/store"
    home = env.get("HOME", "")
    if home.startswith("/") and os.access(home, os.W_OK):
        return f"file://{home}/.cache/glowplug/store"
    return f"file://{default_base(env)}/store"


def describe(launch: Launch, options: RunOptions, env: Mapping[str, str]) -> tuple[Envelope, Path]:
    """The envelope of a start, and the folder under which its live folder lies."""
    base = Path(os.path.abspath(options.cache_dir)) if options.cache_dir else default_base(env)
    components = {name: _text_only(value) for name, value in launch.components.items()}
    if not launch.relocatable:
        paths = components.get("paths")
        components["paths"] = {**(paths if isinstance(paths, dict) else {}), "cache": str(base)}
    return Envelope(components), base


def claim_live(prepared: Prepared, base: Path, trust: Trust) -> Prepared:
    """Take the live folder, emptied if it has held what must not be used here. On failure the cache takes no part in the start."""
    if prepared.envelope is None:
        return prepared
    try:
        live = claim(base, prepared.envelope.digest)
        try:
            cleanse(live.path, noted(base) | untrusted(live.path, trust))
        except LocalError:
            live.close()
            raise
        return replace(prepared, live=live)
    except LocalError as error:
        return replace(prepared, search=Search(Lookup("off", error.line()), may_publish=False))


def look_up_and_restore(
    prepared: Prepared, trust: Trust, *, deadline: Deadline, options: RunOptions, writer: bool, pace: Pace
) -> Prepared:
    """Find the newest generation for the envelope and put it into the live folder.

    Blocks for at most the deadline plus one request's own time-out. Raises nothing but programming errors.

    Args:
        prepared: with envelope, live folder and repository.
        trust: whose signatures count.
        deadline: bounds the step; another thread may cancel it.
        options: of this run.
        writer: a signing key was named for this process.
        pace: told how it goes on.
    """
    envelope, live, repository = prepared.envelope, prepared.live, prepared.repository
    assert envelope is not None  # noqa: S101  the caller's own order of steps
    assert live is not None  # noqa: S101  the same
    assert repository is not None  # noqa: S101  the same
    pointer: Pointer | None = None
    generation, base = "", live.path.parent
    try:
        if not options.restore:
            return replace(prepared, search=Search(Lookup("off", "restoring is turned off (--no-restore)")))
        pointer = repository.latest(envelope.digest)
        deadline.check()
        if pointer is None:
            return replace(prepared, search=Search(Lookup("none", "nothing has been published for this envelope")))
        generation = pointer.generation
        choice = choose(repository, envelope.digest, pointer, trust, live_base=base, deadline=deadline)
        deadline.check()
        _cleanse(live.path, choice.bad, deadline, pace)
        manifest = choice.manifest
        if manifest is None:
            return replace(prepared, search=Search(Lookup("refused", choice.reason), pointer, may_publish=choice.may_publish))
        generation = manifest.digest
        pack_key = layout.pack_key(envelope.digest, manifest.pack.sha256)
        pace.found(manifest)
        restored = restore(
            repository.store, pack_key, manifest, live.path, deadline=deadline, progress=pace.progress, in_use=pace.in_use
        )
    except GlowplugError as error:
        serves = isinstance(prepared.launch.readiness, HttpReadiness)
        return replace(prepared, search=_failed(error, pointer, generation, writer=writer, serves=serves))
    lookup = Lookup("restored", choice.reason or choice.notice, generation)
    return replace(prepared, search=Search(lookup, pointer, manifest, restored, may_publish=choice.may_publish))


def _cleanse(live: Path, bad: frozenset[str], deadline: Deadline, pace: Pace) -> None:
    """Empty a live folder that has held a bad generation, unless an engine may be using it already."""
    if bad and not pace.in_use():
        with deadline.commit():
            cleanse(live, bad)


def note_files(prepared: Prepared) -> Prepared:
    """Remember which compiled files lie in the live folder before the engine starts, and make their next reading visible."""
    if prepared.live is None:
        return prepared
    try:
        files = scan(prepared.live.path, prepared.launch.families)
    except OSError:
        return prepared  # the folder can't be listed; then nothing can be proven from it either
    compiled = [file for file in files if file.compiled]
    age_access_times(prepared.live.path, compiled)
    return replace(prepared, before={file.path: file for file in compiled})


def note_restored(prepared: Prepared, before: Mapping[str, TreeFile]) -> Prepared:
    """The same for a restore beside an engine: what was there before, and what the generation has brought since.

    A file counts as brought if it is what the manifest says, however much of the generation has got there.
    """
    manifest = prepared.search.manifest
    if prepared.live is None or manifest is None:
        return replace(prepared, before=before)
    brought = {entry.path: (entry.path, entry.size_bytes, entry.mtime_ns) for entry in manifest.files}
    try:
        files = scan(prepared.live.path, prepared.launch.families)
    except OSError:
        files = []
    restored = {file.path: file for file in files if file.compiled and brought.get(file.path) == file.state}
    return replace(prepared, before={**before, **restored})


def trust_for(options: RunOptions, env: Mapping[str, str], *, signer: NamedSigner | None = None) -> Trust:
    """Whose signatures count for this start. ``signer``: the named one, if it has been read already. Raises UsageError."""
    home = config_home(env)
    return load_trust(env, keys=options.trusted_keys, signing_key=options.signing_key, signer=signer, home=home)


def store_for(options: RunOptions, env: Mapping[str, str]) -> Store:
    """The store of this start. Raises UsageError."""
    return open_store(options.store or default_store(env), env=env)


def _text_only(tree: Json) -> Json:
    """The same without bytes that are no text, which arguments and variables may hold: each becomes its escape."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "backslashreplace").decode()
    if isinstance(tree, dict):
        return {str(_text_only(name)): _text_only(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_text_only(value) for value in tree]
    return tree


def timed_out(reason: str, pointer: Pointer | None = None, *, serves: bool) -> Search:
    """The store was too slow. A server publishes all the same, beside its work; for a command's end nobody waits any longer."""
    reason = reason if serves else f"{reason}; nothing will be published"
    return Search(Lookup("none", reason), pointer, may_publish=serves, timed_out=True)


def _failed(error: GlowplugError, pointer: Pointer | None, generation: str, *, writer: bool, serves: bool) -> Search:
    match error:
        case UnknownKey():
            # Replaced by a named writer only, as after a rotation: a workstation's own key must not displace what a team publishes.
            return Search(Lookup("refused", error.line()), pointer, may_publish=writer)
        case IntegrityError():
            return Search(Lookup("refused", error.line()), pointer, broken=generation)  # the next publication replaces it
        case ObjectNotFound():
            return Search(Lookup("none", f"a part of the newest generation is missing: {error.line()}"), pointer)
        case DeadlineExceeded():
            return timed_out(error.line(), pointer, serves=serves)
        case LocalError():
            return Search(Lookup("off", error.line()), pointer, may_publish=False)
        case _:
            return Search(Lookup("off", error.line()), pointer)
