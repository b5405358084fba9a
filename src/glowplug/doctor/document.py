"""Findings and rules as JSON, for a program. Field names are stable; new ones may be added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import SEVERITIES
from glowplug.doctor.sources import told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glowplug.cache.envelope import Json
    from glowplug.doctor.base import AnyRule, Finding
    from glowplug.doctor.checking import Checked

SCHEMA = "glowplug.dev/doctor/v1"


def to_json(checked: Checked) -> dict[str, Json]:
    """All that a check has found."""
    return {
        "schema": SCHEMA,
        "objects": checked.objects,
        "counts": counts(checked),
        "findings": [finding_to_json(each) for each in checked.findings],
        "ignored": [{**finding_to_json(each.finding), "reason": each.reason} for each in checked.suppressed],
        "passed_over": [{"file": each.file, "line": each.line, "kind": each.kind} for each in checked.passed_over],
        "unreadable": [
            {"file": each.file, "line": each.line, "problem": each.problem, "hint": each.hint} for each in checked.bad
        ],
    }  # fmt: skip


def counts(checked: Checked) -> dict[str, Json]:
    """How many findings are how bad."""
    return {severity: checked.count(severity) for severity in SEVERITIES}


def finding_to_json(finding: Finding) -> dict[str, Json]:
    """One finding."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "object": finding.object,
        "field": finding.field,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line,
    }


def rules_to_json(rules: Iterable[AnyRule]) -> list[Json]:
    """What the rules are."""
    return [
        {
            "id": rule.id,
            "title": rule.title,
            "severity": rule.severity,
            "why": rule.why,
            "fix": rule.fix,
            "sources": [told(source) for source in rule.sources],
        }
        for rule in rules
    ]
