"""What vLLM's log lines say about a start, from 0.8 to 0.33, as one table.

Why a table: the wording changes with almost every version, and reading a line must not depend on knowing which version wrote it (a
fork or a nightly build calls itself anything). Taken from the format strings of the releases 0.8.5, 0.10.2, 0.14.1, 0.20.2,
0.32.0 and 0.33.0 and from logs of versions between. Later wordings are added here and in ``tests/engines/logs``; none is removed.

Nothing here knows of phases; ``log.py`` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Says(Enum):
    """The meaning of a line. ``..._TOOK`` lines end at their arrival and carry their seconds."""

    WEIGHTS_WANTED = auto()
    """The engine starts to load the model."""
    WEIGHTS_TOOK = auto()
    DYNAMO_TOOK = auto()
    GRAPH_COMPILED = auto()
    """A graph was compiled; with seconds."""
    GRAPH_KEPT = auto()
    """A graph that has been compiled was put into the cache."""
    GRAPH_LOADED = auto()
    """All pieces of a graph came from the cache; with seconds since 0.8.5."""
    PIECE_LOADED = auto()
    """One piece of a graph came from the cache (only at debug level); the pieces of ``GRAPH_LOADED``."""
    AOT_LOADED = auto()
    """A whole compiled model came from the cache."""
    AOT_SAVED = auto()
    """A whole compiled model was put into the cache."""
    LOAD_FAILED = auto()
    """A compiled model was in the cache and could not be used; with the engine's reason."""
    COMPILE_TOOK = auto()
    """Dynamo, Inductor and loading, from begin to end."""
    COMPILE_AND_PROFILE_TOOK = auto()
    """The same and the first run in one figure."""
    WARM_UP_BEGINS = auto()
    """The CPU's compilation begins; it reports no duration."""
    WARM_UP_ENDS = auto()
    PROFILE_TOOK = auto()
    MEMORY_PROFILE_TOOK = auto()
    """Engine V0: profiling, compilation included."""
    MEMORY_KNOWN = auto()
    """Profiling is over: the engine knows how much memory it has for its KV cache."""
    CAPTURING = auto()
    """The progress bar of graph capture."""
    CAPTURE_TOOK = auto()
    """Graph capture; in whole seconds."""
    ENGINE_INIT_TOOK = auto()
    """Profiling, compilation, KV cache and graph capture together; the engine is up."""
    SERVING = auto()
    """The HTTP server is up, or about to be."""


@dataclass(frozen=True, slots=True)
class Told:
    """One line, understood."""

    says: Says
    seconds: float | None = None
    """The duration that the line reports, if it does."""
    reason: str = ""
    """The engine's own words, where a load failed."""


_S = r"(?P<s>\d{1,9}(?:\.\d{1,9})?)"
_WORDINGS: tuple[tuple[Says, re.Pattern[str]], ...] = tuple(
    (says, re.compile(pattern))
    for says, pattern in (
        (Says.WEIGHTS_WANTED, r"Starting to load model "),
        (Says.WEIGHTS_WANTED, r"Loading model from scratch"),  # model runner V2 says only this
        (Says.WEIGHTS_TOOK, rf"Loading weights took {_S} s"),
        (Says.WEIGHTS_TOOK, rf"Model loading took [\d.]+ (?:GiB|GB)(?: memory)? and {_S} s"),
        (Says.DYNAMO_TOOK, rf"Dynamo bytecode transform time: {_S} s"),
        # Since 0.8 the words were "general shape", "shape 8", "dynamic shape" and "compile range (1, 8192)".
        (Says.GRAPH_COMPILED, rf"Compiling a graph for .{{1,80}}? takes {_S} s"),
        (Says.GRAPH_KEPT, r"Cache the graph (?:of|for) "),
        (Says.GRAPH_LOADED, rf"Directly load the compiled graph(?:\(s\))? for .{{1,80}}? from the cache(?:, took {_S} s)?"),
        (Says.PIECE_LOADED, r"Directly load the \d+-th graph "),
        (Says.AOT_LOADED, r"Directly load AOT compilation from path "),
        (Says.AOT_SAVED, r"saved AOT compiled function to "),
        (Says.LOAD_FAILED, r"Compiling model again due to a load failure(?: from .{0,1000}?, reason: ?(?P<reason>.{0,2000}))?"),
        (Says.LOAD_FAILED, r"Cannot load aot compilation from path .{0,1000}?, error: ?(?P<reason>.{0,2000})"),  # 0.11 to 0.14
        (Says.COMPILE_TOOK, rf"torch\.compile took {_S} s in total"),
        # "and initial profiling run took" (0.15 to 0.17), "and initial profiling/warmup run together took" (later, without AOT)
        (Says.COMPILE_AND_PROFILE_TOOK, rf"torch\.compile and initial profiling.{{1,40}}? took {_S} s in total"),
        # "torch.compile takes 7.51 s in total" (to 0.14) is a sum and arrives after the first run: it dates nothing.
        (Says.WARM_UP_BEGINS, r"Warming up model for the compilation"),
        (Says.WARM_UP_ENDS, r"Warming up done"),
        (Says.PROFILE_TOOK, rf"Initial profiling/warmup run took {_S} s"),
        (Says.MEMORY_PROFILE_TOOK, rf"Memory profiling (?:takes|took) {_S} s"),
        (Says.MEMORY_KNOWN, r"Available KV cache memory: "),
        (Says.MEMORY_KNOWN, r"GPU KV cache size: "),
        (Says.MEMORY_KNOWN, r"# (?:GPU|cuda) blocks: "),
        (Says.MEMORY_KNOWN, r"Initial free memory .{1,40}? GiB"),  # --kv-cache-memory-bytes, or an applied startup plan
        (Says.CAPTURING, r"Capturing CUDA graph"),
        (Says.CAPTURE_TOOK, rf"(?:Encoder g|G)raph capturing finished in {_S} s"),
        (Says.ENGINE_INIT_TOOK, rf"init engine \(.{{1,80}}?\) took {_S} s"),
        (Says.SERVING, r"Starting vLLM (?:API )?server "),
        (Says.SERVING, r"Application startup complete"),
    )
)

# "INFO 11-29 16:08:12 [core.py:133] ", "INFO 02-18 04:51:41 backends.py:577] "; whatever stands before it (process, pod, time) is
# not vLLM's business. What follows "] " is the message, and may begin with the compiled part's name in brackets (since 0.29).
_HEADER = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[^\[\]\s]{1,200}:\d{1,7}\] (?:\[[^\[\]]{1,80}\] )?"
)
_HEADER_WITHIN = 512
# Without that header (a logging configuration of the user's own, JSON lines, progress bars, uvicorn) a message may start anywhere.
_OPENING = re.compile(
    r"(?<![^\s\"'|:>\])])(?:Starting to load|Loading (?:model from|weights took)|Model loading took|Dynamo bytecode"
    r"|Compiling (?:a graph|model again)|Cache the graph|Directly load|saved AOT|Cannot load aot|torch\.compile (?:took|and)"
    r"|Warming up|Initial (?:profiling|free)|Memory profiling|Available KV|GPU KV|# (?:GPU|cuda) blocks|Capturing CUDA"
    r"|Graph capturing|Encoder graph|init engine|Starting vLLM|Application startup)"
)
_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LONGEST = 8192  # characters of a line that are looked at; what matters stands at the front


def understand(text: str) -> Told | None:
    """What one line says, or None if it says nothing about the start. Linear time; of the text 8,192 characters count."""
    text = text[:_LONGEST]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    header = _HEADER.search(text, 0, _HEADER_WITHIN)
    if header:
        return _match(text, header.end())
    opening = _OPENING.search(text)
    return _match(text, opening.start()) if opening else None


def _match(text: str, at: int) -> Told | None:
    for says, pattern in _WORDINGS:
        match = pattern.match(text, at)
        if match:
            groups = match.groupdict()
            seconds = groups.get("s")
            return Told(says, None if seconds is None else float(seconds), (groups.get("reason") or "").strip())
    return None
