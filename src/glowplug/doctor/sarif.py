"""Findings as SARIF 2.1.0, which code hosts show beside the lines that they are of.

Only what consumers need: one run, the rules, a result a finding with a physical and a logical location, accepted findings as
suppressed results, unreadable files as notifications.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from typing import TYPE_CHECKING

from glowplug import __version__
from glowplug.doctor.reading import STDIN
from glowplug.doctor.sources import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glowplug.cache.envelope import Json
    from glowplug.doctor.base import AnyRule, Finding, Severity
    from glowplug.doctor.checking import Checked

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(checked: Checked, rules: Sequence[AnyRule]) -> dict[str, Json]:
    """A whole log.

    Args:
        checked: what was found.
        rules: all that were run.
    """
    places = {rule.id: index for index, rule in enumerate(rules)}
    results: list[Json] = [_result(each, places) for each in checked.findings]
    for gone in checked.suppressed:
        justified: list[Json] = [{"kind": "inSource", "justification": gone.reason}]
        results.append({**_result(gone.finding, places), "suppressions": justified})
    notifications: list[Json] = [
        {"level": "error", "message": {"text": f"{each.problem} ({each.hint})"}, "locations": [_location(each.file, each.line)]}
        for each in checked.bad
    ]
    driver: dict[str, Json] = {
        "name": "glowplug doctor", "semanticVersion": __version__, "rules": [_rule(rule) for rule in rules]
    }  # fmt: skip
    run: dict[str, Json] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not checked.bad, "toolExecutionNotifications": notifications}],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: AnyRule) -> dict[str, Json]:
    sources = "\n".join(f"- {told(source)}" for source in rule.sources)
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}\n{sources}".strip()},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, places: dict[str, int]) -> dict[str, Json]:
    identity = f"{finding.rule}\0{finding.file}\0{finding.object}\0{finding.field}"
    result: dict[str, Json] = {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.sentence},
        "partialFingerprints": {"glowplug/v1": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()},
    }
    if finding.rule in places:
        result["ruleIndex"] = places[finding.rule]
    logical: Json = [{"fullyQualifiedName": f"{finding.object}/{finding.field}".rstrip("/"), "kind": "object"}]
    location: dict[str, Json] = {**(_location(finding.file, finding.line) if finding.file else {}), "logicalLocations": logical}
    result["locations"] = [location]
    return result


def _location(file: str, line: int) -> dict[str, Json]:
    name = "stdin.yaml" if file == STDIN else file
    scheme = "file://" if name.startswith("/") else ""
    place: dict[str, Json] = {"artifactLocation": {"uri": scheme + urllib.parse.quote(os.fsencode(name), safe="/")}}
    if line:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}
