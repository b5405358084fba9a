"""Findings and rules as a person reads them: 80 columns, grouped by object, each with its file and line.

Names and values come from files that anybody may have written: what is not printable is shown as an escape.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from glowplug.doctor.base import SEVERITIES
from glowplug.doctor.sources import told
from glowplug.printable import printable
from glowplug.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glowplug.doctor.base import AnyRule, Finding
    from glowplug.doctor.checking import Checked

WIDTH = 80


def render(checked: Checked, *, verbose: bool = False) -> str:
    """All findings and a last line that counts them; ends with a newline."""
    lines: list[str] = []
    ordered = sorted(checked.findings, key=lambda each: (each.file, each.object))  # a stable sort: lines stay in order
    for (file, name), group in groupby(ordered, key=lambda each: (each.file, each.object)):
        lines += [*_wrap(f"{name}  ({file})" if file else name, "", "  "), *_group(group), ""]
    if verbose:
        lines += list(_unseen(checked))
    lines += _wrap(_counted(checked, verbose=verbose), "", "")
    return "\n".join(lines) + "\n"


def _group(found: Iterable[Finding]) -> Iterator[str]:
    for each in found:
        where = f"{each.file.rpartition('/')[2]}:{each.line}: " if each.line else ""
        yield from _wrap(f"{each.severity:<7} {each.rule}  {where}{each.message}", "  ", " " * 17)
        if each.field:
            yield from _wrap(each.field, " " * 17, " " * 17)


def _unseen(checked: Checked) -> Iterator[str]:
    for each in checked.suppressed:
        text = (
            f"ignored {each.finding.rule} of {each.finding.object} ({_place(each.finding.file, each.finding.line)}): {each.reason}"
        )
        yield from _wrap(text, "", "  ")
    for over in checked.passed_over:
        yield from _wrap(f"passed over {over.kind} ({_place(over.file, over.line)})", "", "  ")
    if checked.suppressed or checked.passed_over:
        yield ""


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def _counted(checked: Checked, *, verbose: bool) -> str:
    plural = {"error": "errors", "warning": "warnings", "info": "infos"}
    numbers = [(checked.count(severity), severity) for severity in SEVERITIES]
    found = ", ".join(f"{number} {severity if number == 1 else plural[severity]}" for number, severity in numbers if number)
    text = f"{count(checked.objects, 'object')} checked: {found or 'nothing found'}"
    if checked.suppressed:
        text += f"; {len(checked.suppressed)} ignored by annotation"
    if checked.passed_over:
        text += f"; {len(checked.passed_over)} passed over" + ("" if verbose else " (--verbose lists them)")
    return text + ("; glowplug doctor --explain ID says more" if found else "")


def explain(rule: AnyRule) -> str:
    """One rule, whole; ends with a newline."""
    lines = [
        f"{rule.id}  {rule.title} ({rule.severity})",
        "",
        *_wrap(rule.why, "", ""),
        "",
        *_wrap(f"Fix: {rule.fix}", "", "  "),
        "",
    ]
    if rule.sources:
        lines.append("Sources:")
        for source in rule.sources:
            lines += _wrap(told(source), "  ", "    ", break_words=False)
        lines.append("")
    note = f'To accept it, with a reason, on the object or its pod template: glowplug.dev/ignore: "{rule.id}: why"'
    return "\n".join([*lines, *_wrap(note, "", "  ")]) + "\n"


def _wrap(text: str, first: str, rest: str, *, break_words: bool = True) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=break_words
    ) or [""]
