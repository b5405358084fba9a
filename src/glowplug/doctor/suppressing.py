"""Findings that somebody has looked at and accepted: the annotation ``glowplug.dev/ignore: "GP014: reason; GP210: reason"``.

On an object or on its pod template. A reason is asked for because the next reader needs it; an ignore without one, or of a rule
that doesn't exist, suppresses nothing and is found itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import text, tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glowplug.doctor.base import Finding, Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object, Path

ANNOTATION = "glowplug.dev/ignore"
_RULE = re.compile(r"GP\d{3}")
_NEXT = re.compile(r";\s*(?=GP\d{3}\b|$)")


class Ignore(NamedTuple):
    """One accepted finding."""

    object: Object
    path: Path
    rule: str
    reason: str


class Suppressed(NamedTuple):
    """A finding that isn't shown, and why."""

    finding: Finding
    reason: str


def ignores(manifests: Manifests) -> Iterator[Ignore]:
    """All that annotations say, well or badly written."""
    for each in manifests.objects:
        yield from _of(each, ("metadata",))
    for pod in manifests.pods:
        yield from _of(pod.object, (*pod.path[:-1], "metadata")) if pod.path[:-1] else ()


def _of(carrier: Object, metadata: Path) -> Iterator[Ignore]:
    path = (*metadata, "annotations", ANNOTATION)
    written = text(tree(carrier.body, *metadata), "annotations", ANNOTATION)
    for part in _NEXT.split(written):
        if part.strip():
            rule, _, reason = part.partition(":")
            yield Ignore(carrier, path, rule.strip(), reason.strip())


def suppress(found: Sequence[Finding], manifests: Manifests) -> tuple[list[Finding], list[Suppressed]]:
    """Findings that stay, and those that were accepted."""
    accepted = {(each.object.file, each.object.label, each.rule): each.reason for each in ignores(manifests) if each.reason}
    kept, gone = [], []
    for finding in found:
        reason = accepted.get((finding.file, finding.object, finding.rule))
        if reason is None:
            kept.append(finding)
        else:
            gone.append(Suppressed(finding, reason))
    return kept, gone


def _without_reason(manifests: Manifests) -> Iterator[Problem]:
    for each in ignores(manifests):
        if _RULE.fullmatch(each.rule) and not each.reason:
            yield each.object.problem(each.path, f"{each.rule} is ignored without a reason, so it is not ignored")


def rules(known: Sequence[str]) -> tuple[Rule[Manifests], ...]:
    """The rules about ignores.

    Args:
        known: ids of all other rules.
    """
    names = {*known, "GP701", "GP702"}

    def unknown(manifests: Manifests) -> Iterator[Problem]:
        for each in ignores(manifests):
            if each.rule not in names:
                yield each.object.problem(each.path, f"there is no rule {each.rule} to ignore")

    return (
        Rule(
            "GP701",
            "Ignore without a reason",
            "warning",
            "Whoever reads the manifest next can't tell whether the finding was understood or in the way.",
            'Write the reason: glowplug.dev/ignore: "GP014: the model can\'t be compiled".',
            (),
            _without_reason,
        ),
        Rule(
            "GP702",
            "Ignore of a rule that does not exist",
            "warning",
            "A mistyped id suppresses nothing, or hides that a rule is gone.",
            "Look the id up with glowplug doctor --rules.",
            (),
            unknown,
        ),
    )
