"""The start report: what a start was made of, what the cache did for it, and how that is known.

One document (``schema: glowplug.dev/start/v1``) for people and programs. It is written when the engine is ready (a generic command:
when it exits), and once more when a capture has ended. It never holds the engine's output or environment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.timeline.phases import Phase

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

    @property
    def unattributed_s(self) -> float:
        """Seconds of ``wall_s`` that no phase accounts for, >= 0."""
        covered, end = 0.0, 0.0
        for phase in sorted(self.phases, key=lambda phase: phase.start_s):
            start, stop = max(phase.start_s, end), min(phase.start_s + phase.seconds, self.wall_s)
            covered += max(0.0, stop - start)
            end = max(end, stop)
        return max(0.0, self.wall_s - covered)

    def to_json(self) -> dict[str, Json]:
        """The document, seconds rounded to milliseconds."""
        document: dict[str, Json] = {"schema": SCHEMA, "unattributed_s": self.unattributed_s, **asdict(self)}
        return _rounded(document)  # type: ignore[return-value]


def _rounded(tree: Json) -> Json:
    if isinstance(tree, float):
        return round(tree, 3)
    if isinstance(tree, dict):
        return {name: _rounded(branch) for name, branch in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(branch) for branch in tree]
    return tree
