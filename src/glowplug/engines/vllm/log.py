"""Reads vLLM's output while it starts: which phase took how long, and what became of the compile cache.

Why from the log: it is the only place where vLLM says that it loaded a compiled artefact, or that it could not. The clock is each
line's arrival, since vLLM's own stamps are whole seconds; where a line reports a duration, the phase ends at the arrival and has
that length. ``log_wording.py`` knows the words.

How lines become phases (earlier wins where two claim one moment):

1. ``weights``: from the first line that wants them to the last that has them, over all ranks.
2. ``graph capture``: its own figure, which is rounded to whole seconds, corrected by the first progress bar if that was seen.
3. ``compile``: Dynamo, each graph (compiled or loaded), and the total where a line gives one.
4. ``profiling``: the first run's own figure.
5. ``compile`` without figures: the second between Dynamo and Inductor; the CPU's warm-up from begin to end; a loaded AOT artefact
   from the begin of profiling on.
6. ``profiling`` without figures: from the begin of the engine's initialisation until the free memory is known.
7. ``imports``: from the spawn until the first weight is wanted. ``ready``: from the engine being up to the first good probe.

Everything else stays unattributed: allocation of the KV cache, kernel warm-up, warm-up of the chat template. Never raises on any
text, never keeps lines, and uses a few kilobytes however much the engine says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.engines.vllm.log_wording import Says, understand
from glowplug.printable import one_line
from glowplug.timeline.outcome import Evidence
from glowplug.timeline.phases import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.engines.vllm.log_wording import Told
    from glowplug.timeline.phases import Phase, Span

_MOST_SPANS = 64  # of one kind; a start has a handful, 8 ranks with 8 graphs fit
_MOST_REASONS = 16
_REASON_CHARS = 300
_MOST_LINE = 64 * 1024  # of one line; a progress bar is one long line of carriage returns
_CAPTURE_ROUNDING_S = 1.0
_SAME_PASS_S = 1.0  # two steps of one compilation that lie closer than this have nothing between them

# What the engine's reason does not say: what to do.
_ADVICE = (
    ("finalize_loading", "vLLM on the CPU can't load what it saved; set VLLM_USE_AOT_COMPILE=0"),
    ("Source code has changed", "a file of the engine or the model differs from the one that was compiled"),
    ("Read-only file system", "the cache folder must be writable even where it only serves"),
)


class VllmLog:
    """Implements ``engines.base.EngineLog`` for vLLM 0.8 to 0.33.

    Evidence counts lines: with two ranks of which each loads its artefact, ``loaded`` is 2. Some versions let only the first rank
    speak, so the count says whether, not how many ranks.
    """

    __slots__ = ("_capturing_s", "_counts", "_reasons", "_spans", "_warming")

    def __init__(self) -> None:
        self._spans: dict[Says, list[Span]] = {}
        self._counts: dict[Says, int] = {}
        self._reasons: list[str] = []
        self._warming: tuple[float, bool] | None = None  # begin, and whether any rank has ended
        self._capturing_s: float | None = None

    def feed(self, line: str, at_s: float) -> None:
        """One line of stdout or stderr without its end, and when it arrived, in seconds after the wrapper's start.

        A line may hold carriage returns (progress bars); each piece is read. Of a line the first 64 KiB count.
        """
        for piece in line[:_MOST_LINE].split("\r"):
            told = understand(piece)
            if told:
                self._note(told, at_s)

    def phases(self, spawned_s: float, ready_s: float) -> list[Phase]:
        """The engine's phases between two moments, in order, not overlapping. May be called at any time, and more than once."""
        spans = {says: [span for span in spans if span[1] <= ready_s] for says, spans in self._spans.items()}

        def of(*kinds: Says) -> list[Span]:
            return [span for says in kinds for span in spans.get(says, ())]

        begins = [start for start, _ in of(Says.WEIGHTS_WANTED, Says.WEIGHTS_TOOK)]
        compiling = of(Says.COMPILE_TOOK, Says.DYNAMO_TOOK, Says.GRAPH_COMPILED, Says.GRAPH_LOADED)
        init_s = _init_begins(of(Says.ENGINE_INIT_TOOK), of(Says.WEIGHTS_TOOK))
        # An artefact that was loaded whole, and the end of profiling, have no begin of their own: it is the initialisation's.
        loaded_whole = [] if compiling else _until(init_s, of(Says.AOT_LOADED))
        profiling = [*_until(init_s, of(Says.MEMORY_KNOWN)), *of(Says.MEMORY_PROFILE_TOOK, Says.COMPILE_AND_PROFILE_TOOK)]
        # Several engines (data parallel): up when the last is. A serving line counts only where no engine said so.
        up_s = max((end for _, end in of(Says.ENGINE_INIT_TOOK) or of(Says.SERVING)[:1]), default=None)
        return lay_out(
            [
                ("weights", of(Says.WEIGHTS_TOOK)),
                ("graph capture", of(Says.CAPTURE_TOOK)),
                ("compile", compiling),
                ("profiling", of(Says.PROFILE_TOOK)),
                ("compile", [*_bridges(compiling), *of(Says.WARM_UP_ENDS), *loaded_whole]),
                ("profiling", profiling),
                ("imports", [(spawned_s, min(begins))] if begins else []),
                ("ready", [] if up_s is None else [(up_s, ready_s)]),
            ],
            spawned_s,
            ready_s,
        )

    def evidence(self) -> Evidence:
        """What the log has said so far.

        A compiled graph may be announced three times (compiled, kept, saved as part of a model), so the largest of the three counts
        is taken, not their sum; pieces of a graph count only where no whole graph was announced.
        """
        count = self._counts.get
        return Evidence(
            loaded=count(Says.AOT_LOADED, 0) + (count(Says.GRAPH_LOADED, 0) or count(Says.PIECE_LOADED, 0)),
            compiled=max(count(Says.GRAPH_COMPILED, 0), count(Says.GRAPH_KEPT, 0), count(Says.AOT_SAVED, 0)),
            failed=tuple(self._reasons),
        )

    def _note(self, told: Told, at_s: float) -> None:
        says = told.says
        self._counts[says] = self._counts.get(says, 0) + 1
        if says is Says.LOAD_FAILED:
            self._failed(told.reason)
        begin_s = self._begin(says, at_s - (told.seconds or 0.0), at_s)
        spans = self._spans.setdefault(says, [])
        if len(spans) < _MOST_SPANS:
            spans.append((begin_s, at_s))

    def _begin(self, says: Says, reckoned_s: float, at_s: float) -> float:
        """When the phase of a line began, if another line knows that better than the duration in this one."""
        begin_s = reckoned_s
        if says is Says.WEIGHTS_TOOK and Says.WEIGHTS_WANTED in self._spans:
            begin_s = min(reckoned_s, self._spans[Says.WEIGHTS_WANTED][0][0])
        elif says is Says.WARM_UP_BEGINS and (self._warming is None or self._warming[1]):
            self._warming = (at_s, False)  # ranks overlap: from the first begin until the last end
        elif says is Says.WARM_UP_ENDS and self._warming:
            begin_s = self._warming[0]
            self._warming = (begin_s, True)
        elif says is Says.CAPTURING and self._capturing_s is None:
            self._capturing_s = at_s
        elif says is Says.CAPTURE_TOOK:
            if self._capturing_s is not None and abs(self._capturing_s - reckoned_s) <= _CAPTURE_ROUNDING_S:
                begin_s = self._capturing_s
            self._capturing_s = None
        return begin_s

    def _failed(self, reason: str) -> None:
        words = one_line(reason) or "the engine gave no reason"
        advice = next((advice for mark, advice in _ADVICE if mark in words), "")
        room = _REASON_CHARS - (len(advice) + 3 if advice else 0)
        shown = words if len(words) <= room else words[: room - 3] + "..."
        line = f"{shown} ({advice})" if advice else shown
        if line not in self._reasons and len(self._reasons) < _MOST_REASONS:
            self._reasons.append(line)


def _init_begins(init: list[Span], weights: list[Span]) -> float | None:
    """When profiling began: with the engine's initialisation, if its duration is known, and never before the weights were there."""
    known = [*([min(start for start, _ in init)] if init else []), *([max(end for _, end in weights)] if weights else [])]
    return max(known, default=None)


def _bridges(spans: list[Span]) -> Iterator[Span]:
    """The short gaps between spans."""
    reached_s: float | None = None
    for start, end in sorted(spans):
        if reached_s is not None and 0 < start - reached_s <= _SAME_PASS_S:
            yield reached_s, start
        reached_s = end if reached_s is None else max(reached_s, end)


def _until(begin_s: float | None, ends: list[Span]) -> Iterator[Span]:
    if begin_s is not None and ends:
        yield begin_s, max(end for _, end in ends)
