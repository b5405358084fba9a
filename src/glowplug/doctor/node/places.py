"""The store and the model that were named, each looked at as a start would use it: a bucket, a web server, or a folder.

All are asked at once and none for longer than eight seconds. Their speed is measured one after the other, so that they don't share
the network while it is.
"""

from __future__ import annotations

import os.path
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import unquote

from glowplug.doctor.node.background import Background
from glowplug.doctor.node.bucket import Bucket
from glowplug.doctor.node.facts import Failure, Place
from glowplug.doctor.node.failures import failure_of
from glowplug.doctor.node.folders import look_at
from glowplug.doctor.node.speed import Reading
from glowplug.errors import GlowplugError
from glowplug.store import open_store
from glowplug.weights.sources.open import open_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glowplug.doctor.node.disks import Disks
    from glowplug.doctor.node.facts import Mount
    from glowplug.weights.base import Entry, Source

_LONGEST_S = 8.0
_WEIGHTS = ".safetensors"
_PACKS = "/packs/"


class _Asked(Protocol):
    """A place, and what is known of it so far."""

    place: Place
    entries: list[Entry]

    def visit(self) -> None:
        """Ask it. May hang."""


class _Files:
    """A model on a web server or in a folder."""

    def __init__(self, source: Source) -> None:
        self.place = Place("model", source.uri)
        self.entries: list[Entry] = []
        self._source = source

    def visit(self) -> None:
        try:
            self.entries = self._source.entries()
        except GlowplugError as error:
            self.place = replace(self.place, failure=failure_of(error))
        else:
            self.place = replace(self.place, objects=len(self.entries))


class _StoreFolder:
    """A store in a folder, of which there is nothing to ask but what its file system allows."""

    def __init__(self, url: str) -> None:
        self.place = Place("store", url)
        self.entries: list[Entry] = []

    def visit(self) -> None:
        return


class Visit:
    """A look at one place; begins at once.

    Args:
        role: what it is for.
        url: as the user wrote it.
        env: the environment.

    Raises:
        UsageError: the URL can't be one of a store, or of a model.
    """

    def __init__(self, role: Literal["store", "model"], url: str, *, env: Mapping[str, str]) -> None:
        self.path = _path_of(url)
        self._env = env
        self._source: Source | None = None
        if role == "store":
            open_store(url, env=env)  # refuses what can't be a store; asks nobody
        else:
            self._source = open_source(url, env=env)
        self._asked: _Asked
        if url.lower().startswith("s3://"):
            self._asked = Bucket(role, url, env=env)
        elif self._source is not None:
            self._asked = _Files(self._source)
        else:
            self._asked = _StoreFolder(url)
        self._background = Background(self._asked.visit)

    def place(self) -> Place:
        """What is known after eight seconds at most."""
        ended = self._background.ended(_LONGEST_S)
        found = self._asked.place
        if not ended and found.failure is None:
            return replace(found, failure=Failure("unreachable", f"{found.server or found.url} was silent for {_LONGEST_S:g} s"))
        return found

    def read(self, found: Place, *, free_bytes: int | None) -> Place:
        """The place with what its largest object tells: how fast it can be read. Blocks for a few seconds."""
        wanted = [entry for entry in self._asked.entries if _is_wanted(found, entry)]
        if found.failure is None and found.role == "model" and not wanted:
            return replace(found, failure=Failure("nothing there", f"there is no {_WEIGHTS} file at {found.url}", "check the URL"))
        if found.role == "model":
            found = replace(found, size_bytes=sum(entry.size_bytes for entry in wanted))
        largest = max(wanted, key=lambda entry: entry.size_bytes, default=None)
        if found.failure is not None or largest is None or not largest.size_bytes:
            return found
        reading = Reading(self._source or self._store(), largest, env=self._env, free_bytes=free_bytes)
        return replace(found, speed=reading.run(), failure=reading.failure)

    def _store(self) -> Source:
        """The store, as one reads weights: its packs lie below the folder that was listed."""
        streamers = ("S3_ENDPOINT", "RUNAI_STREAMER_S3_")  # what a source heeds, and a store does not
        env = {name: value for name, value in self._env.items() if not name.startswith(streamers)}
        return open_source(f"{self._asked.place.url.rstrip('/')}/v1/", env=env)


def look_at_places(
    visits: Iterable[Visit], *, root: str, mounts: tuple[Mount, ...], disks: Disks, free_bytes: int | None
) -> tuple[Place, ...]:
    """What is known of all. Blocks for eight seconds at most, and for a few more each where something can be read."""
    found = [(visit, visit.place()) for visit in visits]
    known = []
    for visit, place in found:
        if visit.path:
            write = place.role == "store"
            folder = look_at(os.path.abspath(visit.path), root=root, mounts=mounts, disks=disks, write=write)
            place = replace(place, folder=folder)  # noqa: PLW2901  the same place, with more
        known.append(visit.read(place, free_bytes=free_bytes))
    return tuple(known)


def _is_wanted(place: Place, entry: Entry) -> bool:
    return entry.name.endswith(_WEIGHTS) if place.role == "model" else _PACKS in entry.name


def _path_of(url: str) -> str:
    """The path of what is on this machine; empty for the rest."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return unquote(rest.removeprefix("localhost")) if scheme.lower() == "file" else ""
