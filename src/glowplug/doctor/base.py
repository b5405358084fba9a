"""What a rule is, what it finds, and how bad that is: the contract between rules, those who run them and those who print.

A rule looks at one subject (all manifests that were given, or a machine) and says what is wrong where. It repairs nothing, reaches
for nothing outside its subject, and stays silent where it can't tell: a false alarm costs more than a miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Subject = TypeVar("Subject")
Severity: TypeAlias = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What one rule saw in one place.

    Attributes:
        object: ``Deployment/default/llm``; of a machine, the part that was looked at.
        field: path of the field, ``spec.template.spec.containers[0].args``; empty where the whole object is meant.
        message: one line without the object's name, lower case, no full stop.
        file: where it stands; empty if in no file.
        line: from 1; 0 if in no file.
    """

    object: str
    field: str
    message: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """One rule.

    Attributes:
        id: ``GP014``; never given to another rule, also not after this one is gone.
        title: what is wrong, in a few words.
        severity: ``error``: it does not start, or breaks. ``warning``: it costs time or fails some day. ``info``: worth knowing.
        why: what happens, in whole sentences.
        fix: what to do, as an instruction.
        sources: rows of ``sources.SOURCES``, such as ``A24``, or URLs.
        check: yields what is wrong.
    """

    id: str
    title: str
    severity: Severity
    why: str
    fix: str
    sources: tuple[str, ...]
    check: Callable[[Subject], Iterable[Problem]]


AnyRule: TypeAlias = Rule[Any]
"""For whoever reads rules and runs none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the rule that saw it. Attributes as in ``Problem`` and ``Rule``."""

    rule: str
    severity: Severity
    object: str
    field: str
    message: str
    file: str
    line: int

    @property
    def sentence(self) -> str:
        """Object and message in one line."""
        return f"{self.object}: {self.message}"


def findings(rules: Iterable[Rule[Subject]], subject: Subject) -> list[Finding]:
    """What all rules find, in the order of files and lines, the worst first within a line."""
    found = [
        Finding(rule.id, rule.severity, problem.object, problem.field, problem.message, problem.file, problem.line)
        for rule in rules
        for problem in rule.check(subject)
    ]
    return sorted(found, key=lambda each: (each.file, each.line, SEVERITIES.index(each.severity), each.rule, each.message))
