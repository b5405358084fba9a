"""What the user's own start reports say about the phases of a start, and about the network.

A phase's figure is the median over the reports that have it. Compiling is told apart by what the cache did: a hit tells what
loading from the cache takes, a miss what compiling does. Where only hits are known, the seconds that they saved are added.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from glowplug.errors import GlowplugError, UsageError
from glowplug.plan.base import Term
from glowplug.timeline.report import StartReport
from glowplug.units import MIB, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from glowplug.plan.model import Model

_MOST_REPORT_BYTES = 16 << 20
_LEAST_FETCH_BYTES = 64 * MIB
_SAME_SIZE = 0.05
_PARTS = {
    "restore": ("envelope", "restore"),
    "imports": ("spawn", "imports"),
    "weights": ("weights",),
    "compile": ("compile",),
    "profiling": ("profiling",),
    "graph capture": ("graph capture",),
    "ready": ("ready",),
}
"""A phase of a plan, and the phases of a report that make it up."""

Kind = Literal["cold", "warm"]


def read_report(path: Path) -> StartReport:
    """One report of a file.

    Raises:
        UsageError: it can't be read, or is no report of an engine's start, or of one that failed.
    """
    hint = "give files that glowplug run --report wrote"
    try:
        with open(path, "rb") as file:
            report = StartReport.from_json(json.loads(file.read(_MOST_REPORT_BYTES)))
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        raise UsageError(f"--report: {path}: {reason}", object="--report", hint=hint) from None
    except (ValueError, RecursionError):
        raise UsageError(f"--report: {path} is not JSON", object="--report", hint=hint) from None
    except GlowplugError as error:
        raise UsageError(f"--report: {path}: {error.message}", object="--report", hint=hint) from None
    if report.engine.name == "generic":
        raise UsageError(f"--report: {path} is of a command that is no engine", object="--report", hint=hint)
    if report.exit_code and not any(phase.name == "ready" for phase in report.phases):
        raise UsageError(
            f"--report: {path} is of an engine that ended with exit code {report.exit_code} before it was ready",
            object="--report",
            hint="give reports of starts that succeeded",
        )
    return report


@dataclass(frozen=True, slots=True)
class Measured:
    """Some reports, asked for phases."""

    reports: tuple[StartReport, ...]

    def term(self, phase: str, kind: Kind, model: Model) -> Term | None:
        """A phase of a start of this kind; None where no report tells it."""
        if phase == "unattributed":
            return _term(phase, [report.unattributed_s for report in self.reports])
        if phase not in _PARTS:
            return None
        if phase == "compile":
            return self._compile(kind)
        reports: Iterable[StartReport] = self.reports
        if phase == "restore":
            reports = [report for report in self.reports if (report.cache.generation is not None) == (kind == "warm")]
        elif phase == "weights":
            reports = [report for report in self.reports if _is_same_model(report, model)]
        return _term(phase, list(_sums(phase, reports)))

    def rate(self) -> int | None:
        """Bytes a second of a fetch over the network; the median."""
        rates = [
            report.weights.bytes_per_s
            for report in self.reports
            if report.weights is not None
            and report.weights.mode != "page cache"
            and report.weights.bytes >= _LEAST_FETCH_BYTES
            and not report.weights.error
        ]
        return int(median(rates)) if rates and median(rates) >= 1 else None

    def _compile(self, kind: Kind) -> Term | None:
        hits = [report for report in self.reports if report.outcome == "hit"]
        if kind == "warm":
            return _term("compile", [_seconds(report, "compile") for report in hits])
        misses = [report for report in self.reports if report.outcome in {"miss", "refused", "unused", "off"}]
        found = _term("compile", list(_sums("compile", misses)))
        if found is not None:
            return found
        return _term(
            "compile",
            [max(0.0, _seconds(report, "compile") + report.cache.saved_s) for report in hits if report.cache.saved_s is not None],
            note="with the seconds that the cache saved",
        )


def _sums(phase: str, reports: Iterable[StartReport]) -> Iterable[float]:
    for report in reports:
        if any(part.name in _PARTS[phase] for part in report.phases):
            yield _seconds(report, phase)


def _seconds(report: StartReport, phase: str) -> float:
    return sum(part.seconds for part in report.phases if part.name in _PARTS[phase])


def _is_same_model(report: StartReport, model: Model) -> bool:
    brought = report.weights
    return brought is not None and not brought.error and abs(brought.bytes - model.weight_bytes) <= _SAME_SIZE * model.weight_bytes


def _term(phase: str, values: Sequence[float], *, note: str = "") -> Term | None:
    if not values:
        return None
    told = count(len(values), "report")
    return Term(phase, median(values), min(values), max(values), "measured", note=f"{told}, {note}" if note else told)
