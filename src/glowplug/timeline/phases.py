"""A start is a row of phases on one clock: seconds after the wrapper's own start.

Engines say when a phase began, when it ended, or how long it took, seldom all three, and several ranks say it at once. ``lay_out``
makes of such spans phases that do not overlap. It never fills a gap: what nobody accounts for stays unattributed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Span: TypeAlias = "tuple[float, float]"
"""Start and end, in seconds after the wrapper's start."""

_SLIVER_S = 0.005  # shorter pieces are the jitter between two lines that mean the same moment


@dataclass(frozen=True, slots=True)
class Phase:
    """A named stretch of a start.

    Attributes:
        name: ``envelope``, ``wait`` (for another start that compiles the same), ``restore``, ``spawn``, ``imports`` (imports and
            engine start), ``weights``, ``compile``, ``profiling``, ``graph capture``, ``ready`` (up to the first good probe),
            or ``run`` (a generic command). A name may occur more than once: a draft model is compiled after the main model has been
            profiled.
        start_s: seconds after the wrapper's own start.
        seconds: its length, >= 0.
    """

    name: str
    start_s: float
    seconds: float


def lay_out(layers: Iterable[tuple[str, Iterable[Span]]], start_s: float, end_s: float) -> list[Phase]:
    """Spans to phases, in order and without overlap.

    Args:
        layers: a phase's name and its spans. Where two layers claim the same moment, the earlier layer has it. A name may have
            several layers; a backward span is ignored.
        start_s: nothing before it is kept.
        end_s: nothing after it is kept.

    Returns:
        Pieces of at least 5 ms. Takes time that grows with the square of the number of spans, so callers bound it.
    """
    taken: list[tuple[float, float, str]] = []
    for name, spans in layers:
        for start, end in spans:
            for piece in _free(max(start, start_s), min(end, end_s), taken):
                taken.append((*piece, name))
                taken.sort()
    phases: list[Phase] = []
    for start, end, name in taken:
        last = phases[-1] if phases else None
        if last and last.name == name and start - (last.start_s + last.seconds) < _SLIVER_S:
            phases[-1] = Phase(name, last.start_s, end - last.start_s)
        elif end - start >= _SLIVER_S:
            phases.append(Phase(name, start, end - start))
    return phases


def _free(start: float, end: float, taken: list[tuple[float, float, str]]) -> list[Span]:
    """What of a span nobody has taken yet; ``taken`` is sorted and disjoint."""
    pieces: list[Span] = []
    for taken_start, taken_end, _ in taken:
        if taken_end <= start:
            continue
        if taken_start >= end:
            break
        if taken_start > start:
            pieces.append((start, taken_start))
        start = taken_end
    if start < end:
        pieces.append((start, end))
    return pieces
