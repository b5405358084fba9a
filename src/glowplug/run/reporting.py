"""From what was seen to the start report: phases, the outcome, and how the outcome is known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.tree import scan
from glowplug.cache.usage import read_files
from glowplug.timeline.outcome import CompiledFiles, judge
from glowplug.timeline.phases import Phase
from glowplug.timeline.report import CacheReport, StartReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.cache.envelope import Json
    from glowplug.engines.base import EngineLog
    from glowplug.run.clock import Clock
    from glowplug.run.restoring import Prepared

_MOST_BYTES = 64 * 1024  # of the envelope, and of the engine's own record, in a report


@dataclass
class Steps:
    """The wrapper's own phases, noted as they end."""

    phases: list[Phase] = field(default_factory=list)

    def note(self, name: str, start_s: float, end_s: float) -> None:
        """A step from one moment of the clock to another."""
        self.phases.append(Phase(name, start_s, max(0.0, end_s - start_s)))


def build_report(
    prepared: Prepared, clock: Clock, steps: Steps, log: EngineLog, *, spawned_s: float, ready_s: float
) -> StartReport:
    """The report of a start whose engine is ready, or whose command has ended.

    Reads names and metadata of the live folder; call it before anything else reads files there.

    Args:
        prepared: what was known when the engine was spawned.
        clock: the start's clock.
        steps: the wrapper's own phases.
        log: has read the engine's output.
        spawned_s: when the engine was spawned.
        ready_s: when it was ready.
    """
    files = _compiled_files(prepared)
    outcome, reason = judge(prepared.search.lookup, log.evidence(), files)
    manifest, restored = prepared.search.manifest, prepared.search.restored
    if manifest is not None and prepared.live is not None and outcome in {"partial", "unused"}:
        why = prepared.launch.explain_miss(prepared.live.path, {entry.path for entry in manifest.files})
        reason = f"{reason}; {why}" if why else reason
    saved_s = None
    if manifest is not None and manifest.cold_start_s is not None:
        saved_s = manifest.cold_start_s - ready_s
    return StartReport(
        outcome=outcome,
        reason=reason,
        wall_s=ready_s,
        phases=tuple(sorted(steps.phases + log.phases(spawned_s, ready_s), key=lambda phase: phase.start_s)),
        cache=CacheReport(
            envelope=prepared.envelope.digest if prepared.envelope else None,
            generation=restored.generation if restored else None,
            files=restored.files if restored else 0,
            bytes=restored.bytes if restored else 0,
            saved_s=saved_s,
            store=prepared.store_url,
            root=str(prepared.live.path) if prepared.live else "",
            files_read=files.read,
            files_new=files.new,
            components=_components(prepared),
            engine_key=_engine_key(prepared),
        ),
        engine=prepared.launch.engine,
        started_at=clock.started_at,
        notices=prepared.launch.notices,
    )


def _components(prepared: Prepared) -> Mapping[str, Json] | None:
    """The envelope's, where they fit into a report."""
    envelope = prepared.envelope
    return envelope.components if envelope is not None and len(envelope.document) <= _MOST_BYTES else None


def _engine_key(prepared: Prepared) -> Mapping[str, Json] | None:
    if prepared.live is None:
        return None
    manifest = prepared.search.manifest
    restored = {entry.path for entry in manifest.files} if manifest is not None else set()
    record = prepared.launch.key_record(prepared.live.path, restored)
    return record if record is not None and len(json.dumps(record)) <= _MOST_BYTES else None


def _compiled_files(prepared: Prepared) -> CompiledFiles:
    if prepared.live is None:
        return CompiledFiles()
    before, manifest = prepared.before, prepared.search.manifest
    read = read_files(prepared.live.path, before.values())
    try:
        now = scan(prepared.live.path, prepared.launch.families)
    except OSError:
        now = []
    new = [file for file in now if file.compiled and (file.path not in before or file.state != before[file.path].state)]
    restored = {entry.path for entry in manifest.files} & before.keys() if manifest is not None else set()
    return CompiledFiles(
        restored=len(restored), held=len(before) - len(restored), read=None if read is None else len(read), new=len(new)
    )
