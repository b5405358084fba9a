"""The start report as a person reads it: one table on stderr at ready, and a comparison of starts.

Each phase's bar stands where the phase stood in time, so the table is the timeline; the light one is the fetch of the weights,
which goes on beside the others. Plain text, because it is printed inside the
pod at the very moment that was just measured, and importing a table library would cost more than the cache look-up. Colour only
repeats what the words say. Never reads a terminal or the environment: the caller says how wide, whether coloured, and whether the
stream can show block characters.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from glowplug.printable import one_line
from glowplug.timeline.bars import ASCII, BLOCKS, Glyphs
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from glowplug.timeline.phases import Span
    from glowplug.timeline.report import Outcome, StartReport, WeightsReport

_NARROWEST, _WIDEST = 60, 132
_NAME_COLUMNS = 14
_SECONDS_COLUMNS = 9
_LABEL_COLUMNS = 10
_SHORT_DIGEST = 12  # hex digits; as many as a person can compare at a glance

_WORDS: dict[Outcome, str] = {
    "hit": "hit",
    "partial": "partial hit",
    "unused": "restored, but not used",
    "miss": "miss",
    "refused": "refused",
    "off": "off",
}
_RESET, _DIM, _BOLD = "\x1b[0m", "\x1b[2m", "\x1b[1m"
_OUTCOME_COLOURS: dict[Outcome, str] = {
    "hit": "\x1b[32m",
    "partial": "\x1b[33m",
    "unused": "\x1b[31m",
    "miss": "\x1b[36m",
    "refused": "\x1b[31m",
    "off": _DIM,
}
_PHASE_COLOURS = {
    "restore": "\x1b[32m",
    "fetch": "\x1b[35m",
    "compile": "\x1b[33m",
    "weights": "\x1b[35m",
    "graph capture": "\x1b[36m",
}
_OTHER_PHASE_COLOUR = "\x1b[34m"


def glyphs_for(stream: TextIO) -> Glyphs:
    """Block characters where the stream's encoding has them, ASCII elsewhere."""
    try:
        BLOCKS.everything.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def render(report: StartReport, *, width: int = 80, color: bool = False, glyphs: Glyphs = BLOCKS) -> str:
    """The table, several lines, ending with a newline.

    Args:
        report: any start, also one that failed or has no phases.
        width: columns, clamped to 60..132. Only a word longer than a line (a path, a URL) exceeds it.
        color: emit ANSI colours.
        glyphs: ``BLOCKS`` or ``ASCII``; with ``ASCII`` every character of the table is ASCII, whatever the report holds.
    """
    width = min(max(width, _NARROWEST), _WIDEST)
    paint = _Paint(color)
    rule = paint(_DIM, glyphs.rule * width)
    ended = "ready in" if report.exit_code is None else "ended after"
    engine = " ".join(filter(None, (report.engine.name, report.engine.version)))
    title = f"{engine} {ended} {format_seconds(report.wall_s)}"
    badge = f"cache {report.outcome}"
    head = paint(_BOLD, title) + " " * max(1, width - len(title) - len(badge)) + paint(_OUTCOME_COLOURS[report.outcome], badge)
    lines = [head, rule, *_waterfall(report, width, paint, glyphs), rule]
    outcome = _WORDS[report.outcome]
    first, *rest = _fact("cache", f"{outcome}: {report.reason}", width, paint)
    lines += [first.replace(outcome, paint(_OUTCOME_COLOURS[report.outcome], outcome), 1), *rest]
    for label, text in _facts(report):
        lines += _fact(label, text, width, paint)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return glyphs.only(text)


def compare(reports: Sequence[tuple[str, StartReport]], *, width: int = 80, glyphs: Glyphs = BLOCKS) -> str:
    """Starts side by side, phase by phase, with the last start's seconds as a share of the first's.

    For two starts a bar shows the share: the light part is the first start, the dark part the second. Ends with a newline.

    Args:
        reports: label and start, at least one, in the order of the columns; about five fit into 80 columns.
        width: columns, clamped to 60..132.
        glyphs: ``BLOCKS`` or ``ASCII``.

    Raises:
        ValueError: no report.
    """
    if not reports:
        raise ValueError("nothing to compare")
    width = min(max(width, _NARROWEST), _WIDEST)
    totals = [_totals(report) for _, report in reports]
    names = sorted({name for seconds in totals for name in seconds}, key=lambda name: _order(name, totals))
    columns = [max(_SECONDS_COLUMNS, len(label)) for label, _ in reports]
    head = " " * _NAME_COLUMNS + "".join(f"  {label:>{column}}" for (label, _), column in zip(reports, columns, strict=True))
    show_ratio = len(reports) > 1
    if show_ratio:
        head += f"  {'ratio':>6}"
    bar_columns = width - len(head) - 2 if len(reports) == 2 else 0
    longest = max((max(seconds.values(), default=0.0) for seconds in totals), default=0.0)

    def row(name: str, values: list[float | None], scale: float) -> str:
        cells = "".join(
            f"  {'-' if value is None else format_seconds(value):>{column}}" for value, column in zip(values, columns, strict=True)
        )
        line = f"{name:<{_NAME_COLUMNS}}{cells}"
        if show_ratio:
            line += f"  {_ratio(values[0], values[-1]):>6}"
        if bar_columns > 0 and scale > 0:
            line += "  " + glyphs.share(values[0] or 0.0, values[-1] or 0.0, scale, bar_columns)
        return line.rstrip()

    lines = [head.rstrip(), glyphs.rule * width]
    lines += [row(name, [seconds.get(name) for seconds in totals], longest) for name in names]
    lines.append(row("unattributed", [report.unattributed_s for _, report in reports], longest))
    lines.append(glyphs.rule * width)
    lines.append(row("wall", [report.wall_s for _, report in reports], 0.0))
    outcomes = "".join(f"  {report.outcome:>{column}}" for (_, report), column in zip(reports, columns, strict=True))
    lines.append(f"{'cache':<{_NAME_COLUMNS}}{outcomes}")
    return glyphs.only("\n".join(lines) + "\n")


class _Paint:
    """Wraps text into a colour, or leaves it as it is."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self._on and colour and text.strip() else text


def _waterfall(report: StartReport, width: int, paint: _Paint, glyphs: Glyphs) -> Iterator[str]:
    bar_columns = width - _NAME_COLUMNS - _SECONDS_COLUMNS - 3
    rows: dict[str, list[Span]] = {}
    for phase in sorted(report.phases, key=lambda phase: phase.start_s):
        rows.setdefault(one_line(phase.name), []).append((phase.start_s, phase.start_s + phase.seconds))
    fetch = report.weights
    behind = {} if fetch is None or fetch.start_s is None else {"fetch": [(fetch.start_s, fetch.start_s + fetch.seconds)]}
    for name, spans in sorted((rows | behind).items(), key=lambda row: row[1][0][0]):
        seconds = sum(end - start for start, end in spans)
        shown = [(start, min(end, report.wall_s)) for start, end in spans]
        bar = glyphs.bar(shown, report.wall_s, bar_columns, light=name in behind)  # light: it goes on while something else does
        yield f"{name:<{_NAME_COLUMNS}}{format_seconds(seconds):>{_SECONDS_COLUMNS}} {glyphs.axis} " + paint(
            _PHASE_COLOURS.get(name, _OTHER_PHASE_COLOUR), bar
        )
    gaps = _gaps([span for spans in rows.values() for span in spans], report.wall_s)
    bar = glyphs.bar(gaps, report.wall_s, bar_columns, light=True)
    cells = f"{'unattributed':<{_NAME_COLUMNS}}{format_seconds(report.unattributed_s):>{_SECONDS_COLUMNS}} {glyphs.axis} "
    yield paint(_DIM, cells + bar)


def _facts(report: StartReport) -> Iterator[tuple[str, str]]:
    cache = report.cache
    if cache.generation:
        read = "" if cache.files_read is None else f", {cache.files_read} read"
        yield (
            "restored",
            f"{count(cache.files, 'file')}{read}, {format_bytes(cache.bytes)}, generation {cache.generation[:_SHORT_DIGEST]}",
        )
    if cache.saved_s is not None:
        cold = format_seconds(max(0.0, report.wall_s + cache.saved_s))
        change = "saved" if cache.saved_s >= 0 else "lost"
        yield change, f"{format_seconds(abs(cache.saved_s))} against the recorded cold start of {cold}"
    envelope = f"envelope {cache.envelope[:_SHORT_DIGEST]}" if cache.envelope else "no envelope"
    if report.weights:
        yield from _weights(report.weights)
    yield "store", f"{cache.store}, {envelope}" if cache.store else envelope
    if report.publish:
        yield "publish", _publish(report)
    for notice in report.notices:
        yield "notice", notice


def _weights(weights: WeightsReport) -> Iterator[tuple[str, str]]:
    speed = f" ({format_bytes(round(weights.bytes_per_s))}/s)" if weights.seconds else ""
    amount = f"{format_bytes(weights.bytes)} in {format_seconds(weights.seconds)}{speed}"
    if weights.mode == "page cache":
        yield "weights", f"{amount} read ahead of the engine into the page cache"
        return
    troubles = [(weights.retries, "retry"), (weights.hedges, "hedge"), (weights.stalls, "stall")]
    said = ", ".join(_count(number, noun) for number, noun in troubles if number)
    sealed = ", verified" if weights.verified else ""
    yield "weights", f"{amount}, {weights.mode} buffer{sealed}{f', {said}' if said else ''}"
    if weights.error:
        yield "", f"the fetch failed: {weights.error}"
    elif weights.ranks:
        hidden, visible, waited = map(format_seconds, (weights.hidden_s, weights.visible_s, weights.waited_s))
        yield "", f"{hidden} hidden behind the start, {visible} not; {count(weights.ranks, 'rank')} waited {waited}"


def _count(number: int, noun: str) -> str:
    return f"{number} retries" if noun == "retry" and number != 1 else count(number, noun)


def _publish(report: StartReport) -> str:
    publish = report.publish
    if publish is None:
        return ""
    if publish.state == "published":
        packed = f"{format_bytes(publish.pack_bytes)} packed in {format_seconds(publish.seconds)}"
        sizes = f"{count(publish.files, 'file')}, {format_bytes(publish.bytes)} ({packed})"
        return f"{sizes} as {(publish.generation or '')[:_SHORT_DIGEST]}"
    return f"{publish.state}: {publish.reason}" if publish.reason else publish.state


def _fact(label: str, text: str, width: int, paint: _Paint) -> Iterator[str]:
    wrapped = textwrap.wrap(one_line(text), width - _LABEL_COLUMNS, break_long_words=False, break_on_hyphens=False) or [""]
    yield paint(_DIM, f"{label:<{_LABEL_COLUMNS}}") + wrapped[0]
    for line in wrapped[1:]:
        yield " " * _LABEL_COLUMNS + line


def _gaps(spans: list[Span], wall_s: float) -> list[Span]:
    gaps: list[Span] = []
    reached = 0.0
    for start, end in sorted(spans):
        if start > reached:
            gaps.append((reached, min(start, wall_s)))
        reached = max(reached, end)
    if reached < wall_s:
        gaps.append((reached, wall_s))
    return [(start, end) for start, end in gaps if end > start]


def _totals(report: StartReport) -> dict[str, float]:
    totals: dict[str, float] = {}
    for phase in report.phases:
        totals[phase.name] = totals.get(phase.name, 0.0) + phase.seconds
    return totals


def _order(name: str, totals: list[dict[str, float]]) -> tuple[int, str]:
    """Phases in the order of a start; the first report that knows a phase places it."""
    known = ("envelope", "wait", "restore", "spawn", "imports", "weights", "compile", "profiling", "graph capture", "run", "ready")
    if name in known:
        return known.index(name), name
    return len(known) + min(list(seconds).index(name) for seconds in totals if name in seconds), name


def _ratio(first: float | None, last: float | None) -> str:
    """The share as two decimals; nothing where the first is too short to divide by."""
    if first is None or last is None or first < 0.01:
        return ""
    return f"{last / first:.2f}"
