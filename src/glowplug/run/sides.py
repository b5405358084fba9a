"""Two starts to compare: from a command, from a start report, from a file with an envelope, or from the store.

A report holds its start's envelope and what the engine recorded of its own key, so two pods can be compared by their reports alone,
wherever they are. Whatever is read here may have been written by anybody, and is only compared and shown.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glowplug.cache.envelope import SCHEMA as ENVELOPE
from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.explain.causes import causes
from glowplug.cache.explain.members import read_member
from glowplug.engines.knowledge import compare_records, known_causes, record_path
from glowplug.errors import GlowplugError, IntegrityError, UsageError
from glowplug.run.offline import find_envelope
from glowplug.timeline.report import SCHEMA as REPORT

if TYPE_CHECKING:
    from glowplug.cache.deadline import Deadline
    from glowplug.cache.envelope import Json
    from glowplug.cache.explain.causes import Cause
    from glowplug.cache.repository import Repository
    from glowplug.cache.trust import Trust

_MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Side:
    """One start, as far as its cache's key goes.

    Attributes:
        envelope: its envelope.
        name: where it comes from, for people.
        record: what the engine recorded of its own key; None where that is not known.
    """

    envelope: Envelope
    name: str
    record: Json = None

    @property
    def engine(self) -> str:
        """The engine's name; empty if the envelope holds none."""
        component = self.envelope.components.get("engine")
        name = component.get("name") if isinstance(component, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def title(self) -> str:
        """Engine, version and model, as far as they are known."""
        engine, model = self.envelope.components.get("engine"), self.envelope.components.get("model")
        version = engine.get("version") if isinstance(engine, dict) else None
        reference = model.get("reference") if isinstance(model, dict) else None
        return " ".join(str(part) for part in (self.engine, version, reference) if part)


def side_from_file(path: str) -> Side:
    """A start from its report, from what ``glowplug cache key --json`` printed, or from an ``envelope.json`` of a store.

    Raises:
        UsageError: it can't be read, or is none of these.
        IntegrityError: it is one, and damaged.
    """
    try:
        with open(path, "rb") as file:
            document = file.read(_MOST_BYTES + 1)
        tree = json.loads(document) if len(document) <= _MOST_BYTES else None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", object=path, hint="name a start report or a file with an envelope") from None
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise _not_ours(path)
    record: Json = None
    if tree.get("schema") == ENVELOPE:
        components = tree.get("components")
    elif tree.get("schema") == REPORT:
        cache = tree.get("cache")
        components, record = (cache.get("components"), cache.get("engine_key")) if isinstance(cache, dict) else (None, None)
        if components is None:
            raise UsageError(
                f"{path}: the report holds no envelope: its start had none, or it was shortened",
                object=path,
                hint="take the file that glowplug run --report wrote, not the line of --json nor /dev/termination-log",
            )
    else:
        components = tree.get("components")
    if not isinstance(components, dict):
        raise _not_ours(path)
    return Side(_envelope(components, path), path, record)


def side_from_text(text: str, repository: Repository) -> Side:
    """A start from a file, if there is one of this name, or from the envelope in the store whose digest begins so.

    Raises:
        UsageError: no such file, and no beginning of a digest.
        ObjectNotFound: no such envelope in the store.
        GlowplugError: as ``Repository.envelope``.
    """
    if os.path.exists(text):
        return side_from_file(text)
    if not text or not all(letter in "0123456789abcdef" for letter in text):
        raise UsageError(
            f"--against {text}: no such file, and not the beginning of an envelope's digest",
            object=text,
            hint="name a start report, a file with an envelope, or a digest that glowplug cache ls lists",
        )
    digest = find_envelope(repository, text)
    return Side(repository.envelope(digest), digest[:12])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Why two starts do not share a cache.

    Attributes:
        causes: by their envelopes, the likeliest accident first; empty if the envelopes are equal.
        factors: by the engine's own records; empty if there are not two, or they are equal.
        recorded: there are records of both.
    """

    causes: tuple[Cause, ...]
    factors: tuple[Cause, ...]
    recorded: bool


def with_record(theirs: Side, repository: Repository, trust: Trust, *, deadline: Deadline) -> Side:
    """The same with what the engine recorded in the newest generation of the store for its envelope, if that can be had.

    The signature is verified first. Reads the pack up to the record, so it is for a person who waits. Never fails.
    """
    digest = theirs.envelope.digest
    try:
        pointer = repository.latest(digest)
        if pointer is None:
            return theirs
        manifest = repository.load(digest, pointer.generation, trust)
        sizes = {entry.path: entry.size_bytes for entry in manifest.files}
        path = record_path(theirs.engine, sizes)
        if path is None or sizes[path] > _MOST_BYTES:
            return theirs
        record = json.loads(read_member(repository.store, manifest, path, deadline=deadline))
    except (GlowplugError, ValueError, RecursionError):
        return theirs
    return replace(theirs, record=record)


def compare_sides(ours: Side, theirs: Side) -> Comparison:
    """Compare two starts. A record that is none counts as absent."""
    known = known_causes(ours.engine)
    factors: tuple[Cause, ...] = ()
    recorded = ours.record is not None and theirs.record is not None and ours.engine == theirs.engine
    if recorded:
        try:
            factors = tuple(compare_records(ours.engine, ours.record, theirs.record))
        except ValueError:
            recorded = False
    return Comparison(tuple(causes(ours.envelope, theirs.envelope, known)), factors, recorded)


def _envelope(components: dict[str, Json], path: str) -> Envelope:
    try:
        return Envelope.parse(canonical_json({"schema": ENVELOPE, "components": components}))
    except (ValueError, RecursionError) as error:  # NaN, half a surrogate pair, a thousand levels
        raise IntegrityError(f"{path}: the envelope is not plain JSON: {error}", object=path) from None


def _not_ours(path: str) -> UsageError:
    hint = "name a file that glowplug run --report or glowplug cache key --json wrote"
    return UsageError(f"{path}: neither a start report nor an envelope", object=path, hint=hint)
