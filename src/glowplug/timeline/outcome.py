"""What the cache did for a start, judged by what the engine did and never by what was copied.

Why a function of its own: "restored 64 files" is what others report, also when the engine then compiles everything again. The
verdict needs three witnesses: the look-up (was anything restored?), the engine's log (did it load, did it compile?) and the cache
folder (which compiled files were opened, which are new?). Pure: no clock, no files, no engine's name.

Rules; the first that applies decides. "Had" are the compiled files that lay in the cache folder when the engine was spawned,
restored or not; "read" are those of them that it opened; "new" are compiled files that appeared or were replaced::

    the user turned the cache off                                  off      whatever the folder held
    nothing restored, nothing had                                  as looked up: miss or refused
    log: loaded > 0, compiled = 0, no failure                      hit
    log: loaded > 0, and compiled > 0 or a failure                 partial
    log: loaded = 0, and compiled > 0 or a failure                 unused   the first failure is quoted
    log silent: nothing had                                        unused   the generation held no compiled file
    log silent: new = 0, and read > 0 or unknown                   hit
    log silent: new = 0, read = 0                                  unused   eager mode, or the engine looks elsewhere
    log silent: new > 0, read = 0                                  unused
    log silent: new > 0, read unknown                              unused if new >= had, else partial
    log silent: new >= had / 2, read < had / 10                    unused   a search that opened a few and found none that fits
    log silent: otherwise                                          partial

Nothing restored, yet a hit or partial by files that lay on the node: reported as such, and the reason says so. If they were not
used either, the look-up's own outcome stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowplug.units import count

if TYPE_CHECKING:
    from glowplug.timeline.report import Outcome

_READ_FEW = 10  # fewer than one in ten of the files that were had: a search, not a use
_NEW_MANY = 2  # at least one in two: a compilation of the whole


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the engine's own log says about compiled code. All zero where the log says nothing."""

    loaded: int = 0
    """Artefacts loaded from the cache."""
    compiled: int = 0
    """Graphs compiled in this start."""
    failed: tuple[str, ...] = ()
    """Why restored artefacts could not be loaded, one line each, as the engine put it (shortened to 300 characters)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """How the search for a generation ended."""

    state: Literal["restored", "none", "refused", "off"]
    """``none``: there is no generation for this envelope, or the store could not be asked in time."""
    reason: str = ""
    """Why nothing was restored, or not the newest generation, as a clause without a full stop; may be empty for ``restored`` and
    ``none``."""
    generation: str = ""
    """Digest of the restored generation; empty where none was."""


@dataclass(frozen=True, slots=True)
class CompiledFiles:
    """Files that hold compiled code (``Family.is_compiled``); notes beside them are not counted.

    Raises:
        ValueError: a negative number.
    """

    restored: int = 0
    """Put into the cache folder by the restore."""
    held: int = 0
    """In the cache folder before the start, by an earlier start on this node."""
    read: int | None = None
    """Of these two together, opened by the engine; None where the file system does not tell."""
    new: int = 0
    """Appeared during the start, or were replaced."""

    def __post_init__(self) -> None:
        if min(self.restored, self.held, self.new, self.read or 0) < 0:
            raise ValueError(f"negative number of files: {self}")

    @property
    def had(self) -> int:
        """Compiled files that the engine could have used."""
        return self.restored + self.held


def judge(lookup: Lookup, evidence: Evidence, files: CompiledFiles) -> tuple[Outcome, str]:
    """The outcome, and the reason in one sentence with its numbers and without a full stop. See the module's table."""
    if lookup.state == "off":
        return "off", lookup.reason or "the cache is turned off"
    restored = lookup.state == "restored"
    if not restored and not files.had:
        return _as_looked_up(lookup)
    used, why = _by_log(evidence) if _spoke(evidence) else _by_files(files)
    if restored:
        return used, f"{why}; {lookup.reason}" if lookup.reason else why
    if used == "unused":
        outcome, reason = _as_looked_up(lookup)
        return outcome, f"{reason}; {count(files.held, 'compiled file')} of an earlier start lay on this node, but {why}"
    refusal = f", and the stored generation was refused: {lookup.reason}" if lookup.state == "refused" else ""
    return (
        used,
        f"{why}, from {count(files.held, 'compiled file')} of an earlier start on this node; nothing was restored{refusal}",
    )


def _as_looked_up(lookup: Lookup) -> tuple[Outcome, str]:
    if lookup.state == "refused":
        return "refused", lookup.reason or "the generation was refused"
    return "miss", lookup.reason or "no generation for this envelope in the store"


def _spoke(evidence: Evidence) -> bool:
    return bool(evidence.loaded or evidence.compiled or evidence.failed)


def _by_log(evidence: Evidence) -> tuple[Outcome, str]:
    loaded = f"the engine loaded {count(evidence.loaded, 'compiled artefact')}"
    failure = f"it could not load what was there: {evidence.failed[0]}" if evidence.failed else ""
    if evidence.loaded and not evidence.compiled:
        return ("partial", f"{loaded}, but not all: {evidence.failed[0]}") if failure else ("hit", f"{loaded} and compiled nothing")
    compiled = f"compiled {count(evidence.compiled, 'graph')}"
    if evidence.loaded:
        return "partial", f"{loaded} and {compiled} again" + (f", because {failure}" if failure else "")
    if failure:
        return "unused", f"the engine compiled again, because {failure}"
    return "unused", f"the engine {compiled} and loaded none of what was there; its own key must differ"


def _by_files(files: CompiledFiles) -> tuple[Outcome, str]:
    had, new = files.had, files.new
    if not had:
        return "unused", f"the restored generation held no compiled file; {count(new, 'compiled file')} appeared"
    if files.read is None:
        return _by_new_files(had, new)
    appeared = f"{count(new, 'new compiled file')} appeared" if new else "nothing was compiled"
    if not files.read:
        return "unused", f"{appeared}, and none of the {count(had, 'compiled file')} that lay there was read"
    was_read = f"{files.read} of {count(had, 'compiled file')} {'was' if files.read == 1 else 'were'} read"
    if new * _NEW_MANY >= had and files.read * _READ_FEW < had:
        return "unused", f"only {was_read}, and {appeared}"
    return "partial" if new else "hit", f"{was_read}, and {appeared}"


def _by_new_files(had: int, new: int) -> tuple[Outcome, str]:
    appeared = f"{count(new, 'new compiled file')} appeared" if new else "no new compiled file appeared"
    outcome: Outcome = "unused" if new >= had else "partial" if new else "hit"
    return outcome, f"{appeared} beside the {had} that lay there (this file system does not tell what was read)"
