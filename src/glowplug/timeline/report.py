"""The start report: what a start was made of, what the cache did for it, and how that is known.

One document (``schema: glowplug.dev/start/v1``) for people and programs. It is written when the engine is ready (a generic command:
when it exits), and once more when a capture has ended. It never holds the engine's output or environment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from glowplug.errors import IncompatibleError
from glowplug.timeline.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.cache.envelope import Json

SCHEMA = "glowplug.dev/start/v1"

Outcome: TypeAlias = Literal["hit", "partial", "unused", "miss", "refused", "off"]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Which engine the command starts."""

    name: str
    """``vllm`` or ``generic``."""
    version: str | None
    """Of its distribution, such as ``0.32.0``; None where it has none or it could not be read."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What the cache brought."""

    envelope: str | None
    """Digest of the envelope; None if it could not be computed."""
    generation: str | None = None
    """Digest of the restored generation; None if none was."""
    files: int = 0
    """Files restored."""
    bytes: int = 0
    """Bytes restored, unpacked."""
    saved_s: float | None = None
    """Seconds to ready in the recorded cold start less seconds to ready in this one; None without a restore."""
    store: str = ""
    """The store's URL."""
    root: str = ""
    """Where the live cache lies."""
    files_read: int | None = None
    """Restored files that the engine has opened; None where the file system does not tell."""
    files_new: int = 0
    """Compiled files that appeared during the start."""
    components: Mapping[str, Json] | None = None
    """The envelope's, so that two starts can be compared by their reports; None if there is none, or it is too large."""
    engine_key: Mapping[str, Json] | None = None
    """What the engine itself recorded of its cache's key; None if it wrote nothing, or nothing that can be told apart."""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """How the capture ended."""

    state: Literal["published", "exists", "nothing new", "failed", "skipped", "cancelled"]
    reason: str = ""
    """Why, where it is not ``published``."""
    generation: str | None = None
    """Digest of the published generation."""
    files: int = 0
    """Files in it."""
    bytes: int = 0
    """Their bytes, unpacked."""
    pack_bytes: int = 0
    """Bytes of the pack."""
    seconds: float = 0.0
    """From the capture's start to its end."""


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """How the weights came to the node, where Glowplug brought them."""

    uri: str
    """Of the checkpoint, without credentials; a path for one that lies on the node."""
    mode: Literal["full", "windowed", "page cache"]
    """``page cache``: the files of a local checkpoint were read ahead of the engine, and nothing was streamed."""
    bytes: int = 0
    """Fetched, or read from the disk."""
    seconds: float = 0.0
    """From the first request to the last byte, or to the end of the report."""
    start_s: float | None = None
    """When the first request was sent, in seconds after the wrapper's start."""
    requests: int = 0
    retries: int = 0
    """Attempts after the first."""
    hedges: int = 0
    """Second requests, sent because the first was slow."""
    stalls: int = 0
    """Requests that were ended because they were too slow."""
    ranks: int = 0
    """Processes that took all their tensors from the buffer."""
    waited_s: float = 0.0
    """Longest time that one of them waited for bytes."""
    hidden_s: float = 0.0
    """The part of the fetch that lay before the first of them wanted a tensor."""
    visible_s: float = 0.0
    """The part after that."""
    verified: bool = False
    """Each block was compared with the checkpoint's seal."""
    error: str = ""
    """Why the fetch failed; empty if it did not."""

    @property
    def bytes_per_s(self) -> float:
        """Throughput; 0 where no time was measured."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that somebody should look at, or be alerted by."""

    name: str
    """``cold fallback``: the engine died after a restore and was started once more without it. ``evidence``: this node will not
    use a generation again, and says so to others. ``quarantine``: a generation was made bad for everyone."""
    at_s: float
    """Seconds after the wrapper's start."""
    generation: str = ""
    """Digest of the generation that it is about."""
    detail: str = ""
    """One clause for people."""


@dataclass(frozen=True, slots=True)
class StartReport:
    """One start."""

    outcome: Outcome
    reason: str
    """Why this outcome, in one sentence."""
    wall_s: float
    """From the wrapper's start to ready (generic: to the exit)."""
    phases: tuple[Phase, ...]
    """In order of their start; they do not overlap, except that ``restore`` may."""
    cache: CacheReport
    engine: EngineInfo
    started_at: str = ""
    """Wall-clock time of the wrapper's start, RFC 3339 in UTC."""
    exit_code: int | None = None
    """The command's, where it has ended."""
    publish: PublishReport | None = None
    notices: tuple[str, ...] = field(default=())
    weights: WeightsReport | None = None
    """None where the engine fetched its weights by itself."""
    events: tuple[Event, ...] = ()
    """In the order of their time."""

    @property
    def unattributed_s(self) -> float:
        """Seconds of ``wall_s`` that no phase accounts for, >= 0."""
        covered, end = 0.0, 0.0
        for phase in sorted(self.phases, key=lambda phase: phase.start_s):
            start, stop = max(phase.start_s, end), min(phase.start_s + phase.seconds, self.wall_s)
            covered += max(0.0, stop - start)
            end = max(end, stop)
        return max(0.0, self.wall_s - covered)

    def to_json(self, *, brief: bool = False) -> dict[str, Json]:
        """The document, seconds rounded to milliseconds.

        Args:
            brief: leave out what only a comparison needs, ``cache.components`` and ``cache.engine_key``: most of the bytes.
        """
        document: dict[str, Json] = {
            "schema": SCHEMA,
            "outcome": self.outcome,
            "reason": self.reason,
            "wall_s": self.wall_s,
            "unattributed_s": self.unattributed_s,
        }
        document |= asdict(replace(self, cache=replace(self.cache, components=None, engine_key=None)))
        if self.weights is not None:
            document["weights"] = {**asdict(self.weights), "bytes_per_s": self.weights.bytes_per_s}
        document = cast("dict[str, Json]", _rounded(document))
        cache = _tree(document["cache"])
        for name in ("components", "engine_key"):
            del cache[name]
            kept = getattr(self.cache, name)
            if kept is not None and not brief:
                cache[name] = dict(kept)  # as it is: a digest is made of it
        return document

    @classmethod
    def from_json(cls, document: Json) -> StartReport:
        """Read a document that ``to_json`` made. Members that this version does not know are ignored, so newer reports can be read.

        Raises:
            IncompatibleError: not a start report, or of another schema.
        """
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            found = document.get("schema") if isinstance(document, dict) else type(document).__name__
            raise IncompatibleError(
                f"not a start report of schema {SCHEMA}: {found!r}", hint="give a file that glowplug run --report wrote"
            )
        try:
            return cls(
                outcome=_outcome(document["outcome"]),
                reason=_text(document["reason"]),
                wall_s=_number(document["wall_s"]),
                phases=tuple(
                    Phase(_text(phase["name"]), _number(phase["start_s"]), _number(phase["seconds"]))
                    for phase in map(_tree, _list(document["phases"]))
                ),
                cache=CacheReport(**_known(CacheReport, document["cache"])),
                engine=EngineInfo(**_known(EngineInfo, document["engine"])),
                started_at=_text(document.get("started_at", "")),
                exit_code=None if document.get("exit_code") is None else int(_number(document["exit_code"])),
                publish=None if document.get("publish") is None else PublishReport(**_known(PublishReport, document["publish"])),
                notices=tuple(map(_text, _list(document.get("notices", [])))),
                weights=None if document.get("weights") is None else WeightsReport(**_known(WeightsReport, document["weights"])),
                events=tuple(Event(**_known(Event, event)) for event in _list(document.get("events", []))),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleError(
                f"start report is damaged: {type(error).__name__}: {error}", hint="write it again with glowplug run --report"
            ) from None


def _rounded(tree: Json) -> Json:
    if isinstance(tree, float):
        return round(tree, 3)
    if isinstance(tree, dict):
        return {name: _rounded(branch) for name, branch in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(branch) for branch in tree]
    return tree


def _known(kind: type, tree: Json) -> dict[str, Any]:
    """The members of an object that the class has; numbers and text are what they were written as."""
    names = {member.name for member in fields(kind)}
    return {name: value for name, value in _tree(tree).items() if name in names}


def _outcome(value: Json) -> Outcome:
    if value not in get_args(Outcome):
        raise ValueError(f"unknown outcome {value!r}")
    return cast("Outcome", value)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _tree(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value
