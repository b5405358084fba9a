"""``--metrics FILE``: the start as Prometheus metrics, in the text format that node-exporter's textfile collector and others read.

Written when the report is, and replaced atomically. Written by hand: the format of a few gauges and counters is three kinds of
lines, the official client would be one more package in every injected folder, and a test holds the file to that client's parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import glowplug
from glowplug.timeline.report import Outcome
from glowplug.timeline.write import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from glowplug.timeline.report import StartReport

_EVENTS = {
    "cold fallback": ("glowplug_cold_fallbacks_total", "Engines that died after a restore and were started again without it."),
    "evidence": ("glowplug_evidence_total", "Generations that this node will not use again."),
    "quarantine": ("glowplug_quarantines_total", "Generations that were made bad for everyone by this start."),
}


def write_metrics(path: Path, report: StartReport) -> None:
    """Replace the file, as a whole; a device or a pipe is written to.

    Raises:
        LocalError: it can't be written.
    """
    write_whole(path, exposition(report).encode(), what="metrics", mode=0o644)  # the collector is another user


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        for labels, value in self.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{self.name}{{{inner}}} {value:.15g}" if inner else f"{self.name} {value:.15g}")
        return "\n".join(lines) + "\n"


def exposition(report: StartReport) -> str:
    """The metrics of a start in the text format, version 0.0.4."""
    return "".join(metric.text for metric in _metrics(report) if metric.samples)


def _metrics(report: StartReport) -> Iterator[_Metric]:
    engine, cache = report.engine, report.cache
    labels = {
        "version": glowplug.__version__,
        "engine": engine.name,
        "engine_version": engine.version or "",
        "envelope": cache.envelope or "",
        "generation": cache.generation or "",
    }
    yield _Metric("glowplug_start_info", "What was started; always 1.", ((labels, 1),))
    yield _one("glowplug_start_seconds", "From the wrapper's start to ready.", report.wall_s)
    yield _one("glowplug_start_unattributed_seconds", "The part of it that no phase accounts for.", report.unattributed_s)
    phases: dict[str, float] = {}
    for phase in report.phases:
        phases[phase.name] = phases.get(phase.name, 0.0) + phase.seconds
    yield _Metric("glowplug_start_phase_seconds", "Its parts.", tuple(({"phase": name}, s) for name, s in phases.items()))
    outcomes = tuple(({"outcome": name}, float(name == report.outcome)) for name in get_args(Outcome))
    yield _Metric("glowplug_start_outcome", "What the cache did for it: 1 for one outcome, 0 for the others.", outcomes)
    yield _one("glowplug_restored_bytes", "Bytes of the restored generation, unpacked.", cache.bytes)
    yield _one("glowplug_restored_files", "Its files.", cache.files)
    yield _one("glowplug_saved_seconds", "Seconds to ready in the recorded cold start less those in this one.", cache.saved_s)
    yield _one("glowplug_lease_wait_seconds", "Waited for another start that compiled the same.", phases.get("wait", 0.0))
    for name, (metric, help_) in _EVENTS.items():
        yield _one(metric, help_, sum(event.name == name for event in report.events))
    if report.publish is not None:
        states = (({"state": report.publish.state}, 1.0),)
        yield _Metric("glowplug_publish_state", "How the publication ended; always 1.", states)
        yield _one("glowplug_published_bytes", "Bytes of the published pack.", report.publish.pack_bytes)
        yield _one("glowplug_publish_seconds", "From the capture's start to its end.", report.publish.seconds)
    if report.weights is not None:
        yield _one("glowplug_weights_bytes", "Bytes of weights fetched, or read ahead.", report.weights.bytes)
        yield _one("glowplug_weights_seconds", "From the first request to the last byte.", report.weights.seconds)
        yield _one("glowplug_weights_visible_seconds", "The part of it that the engine waited for.", report.weights.visible_s)
        yield _one("glowplug_weights_failed", "1 if the fetch failed.", float(bool(report.weights.error)))
    yield _one("glowplug_engine_exit_code", "The engine's exit code; missing while it runs.", report.exit_code)


def _one(name: str, help_: str, value: float | None) -> _Metric:
    """A metric with one sample; with none where the value is not known."""
    return _Metric(name, help_, () if value is None else (({}, value),))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
