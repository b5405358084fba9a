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
MACHINE = "GP9"
"""How the ids of rules over a machine begin."""


def render(checked: Checked, *, verbose: bool = False) -> str:
    """All findings and a last line that counts them; ends with a newline."""
    ordered = sorted(checked.findings, key=lambda each: (each.file, each.object))  # a stable sort: lines stay in order
    lines = list(listed(ordered))
    if verbose:
        lines += list(_unseen(checked))
    text = f"{count(checked.objects, 'object')} checked: {counted(checked)}"
    if checked.bad:
        text += f"; {count(len({each.file for each in checked.bad}), 'file')} could not be read"
    if checked.suppressed:
        text += f"; {len(checked.suppressed)} ignored by annotation"
    if checked.passed_over:
        text += f"; {len(checked.passed_over)} passed over" + ("" if verbose else " (--verbose lists them)")
    lines += wrapped(text + hint(checked), "", "")
    return "\n".join(lines) + "\n"


def listed(found: Iterable[Finding]) -> Iterator[str]:
    """Findings in their order, neighbours of one file and object as a group with an empty line after it."""
    for (file, name), group in groupby(found, key=lambda each: (each.file, each.object)):
        yield from wrapped(f"{name}  ({file})" if file else name, "", "  ")
        yield from _group(group)
        yield ""


def counted(checked: Checked) -> str:
    """How many findings there are: ``1 error, 2 warnings``."""
    plural = {"error": "errors", "warning": "warnings", "info": "infos"}
    numbers = [(checked.count(severity), severity) for severity in SEVERITIES]
    found = ", ".join(f"{number} {severity if number == 1 else plural[severity]}" for number, severity in numbers if number)
    return found or "nothing found"


def hint(checked: Checked) -> str:
    """What to do next, for the end of the last line."""
    return "; glowplug doctor --explain ID says more" if checked.findings else ""


def _group(found: Iterable[Finding]) -> Iterator[str]:
    for each in found:
        where = f"{each.file.rpartition('/')[2]}:{each.line}: " if each.line else ""
        yield from wrapped(f"{each.severity:<7} {each.rule}  {where}{each.message}", "  ", " " * 17)
        if each.field:
            yield from wrapped(each.field, " " * 17, " " * 17)


def _unseen(checked: Checked) -> Iterator[str]:
    for each in checked.suppressed:
        text = (
            f"ignored {each.finding.rule} of {each.finding.object} ({_place(each.finding.file, each.finding.line)}): {each.reason}"
        )
        yield from wrapped(text, "", "  ")
    for over in checked.passed_over:
        yield from wrapped(f"passed over {over.kind} ({_place(over.file, over.line)})", "", "  ")
    if checked.suppressed or checked.passed_over:
        yield ""


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def explain(rule: AnyRule) -> str:
    """One rule, whole; ends with a newline."""
    lines = [
        f"{rule.id}  {rule.title} ({rule.severity})",
        "",
        *wrapped(rule.why, "", ""),
        "",
        *wrapped(f"Fix: {rule.fix}", "", "  "),
        "",
    ]
    if rule.sources:
        lines.append("Sources:")
        for source in rule.sources:
            lines += wrapped(told(source), "  ", "    ", break_words=False)
        lines.append("")
    if rule.id.startswith(MACHINE):
        note = "It is about the machine that glowplug doctor --node runs on."
    else:
        note = f'To accept it, with a reason, on the object or its pod template: glowplug.dev/ignore: "{rule.id}: why"'
    return "\n".join([*lines, *wrapped(note, "", "  ")]) + "\n"


def wrapped(text: str, first: str, rest: str, *, break_words: bool = True) -> list[str]:
    """Lines of 80 columns, with these indents; what is not printable as an escape."""
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=break_words
    ) or [""]
