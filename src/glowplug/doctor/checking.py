"""One check: run every rule over what was read or found, and take out what was accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.doctor.base import findings
from glowplug.doctor.manifests import Manifests
from glowplug.doctor.node.registry import node_rules
from glowplug.doctor.registry import manifest_rules
from glowplug.doctor.suppressing import suppress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glowplug.doctor.base import Finding, Severity
    from glowplug.doctor.node.facts import NodeFacts
    from glowplug.doctor.reading import BadFile, PassedOver, Read
    from glowplug.doctor.suppressing import Suppressed


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found.

    Attributes:
        findings: in the order of files and lines.
        suppressed: accepted by annotation.
        objects: how many were checked; 0 for a machine.
        passed_over: documents that no rule knows.
        bad: files that could not be read.
    """

    findings: Sequence[Finding]
    suppressed: Sequence[Suppressed] = ()
    objects: int = 0
    passed_over: Sequence[PassedOver] = ()
    bad: Sequence[BadFile] = ()

    def count(self, severity: Severity) -> int:
        """How many findings are so bad."""
        return sum(1 for each in self.findings if each.severity == severity)

    def exit_code(self, *, strict: bool = False) -> int:
        """2 if a file could not be read; 1 on errors, and if strict on warnings; else 0."""
        if self.bad:
            return 2
        return int(bool(self.count("error") or (strict and self.count("warning"))))


def check_manifests(given: Read) -> Checked:
    """Run all rules over what was read."""
    manifests = Manifests(given.objects)
    kept, gone = suppress(findings(manifest_rules(), manifests), manifests)
    return Checked(kept, gone, len(given.objects), given.passed_over, given.bad)


def check_node(facts: NodeFacts) -> Checked:
    """Run all rules over a machine."""
    return Checked(findings(node_rules(), facts))
