"""The engine to its end, and once more without the cache if it died of a restore.

When is the cache suspected? All of these must hold:

- compiled files lay in the live folder, restored or from an earlier start, and by their access times the engine has opened some
  (where the file system does not tell, that is taken as given). A wrong option or a port in use ends an engine before that.
- it failed: an exit code other than 0, or a signal. It was not told to end, neither through us nor by a stop signal from others.
- it died within ``--poison-window`` of its spawn. For a server also at any time before it was ready: a large model loads weights
  for minutes before it runs what was restored. Where readiness is not watched, the window alone counts.
- the kernel killed nothing for want of memory meanwhile. A cold start needs more memory, not less. Where the counter can't be read
  and SIGKILL ended the engine, it is started again, but nothing is said against the generation.

A server is started again whatever its failure was: it has done nothing yet that can't be done twice. A plain command may have:
a training script that exits with 1 after a minute has perhaps written results. So such a command is run again only if a signal
ended it that broken machine code causes (SIGSEGV, SIGILL, SIGBUS, SIGABRT, SIGFPE), and only if it reads no pipe or file on its
standard input, which could not be read twice.

The second attempt has the same words, the same live folder, emptied, and weights of its own, because the first attempt may have
used up the host buffer. If it dies as well, the cache was not the cause: nothing is reported, and the exit code is the second's.
There is no third.
"""

from __future__ import annotations

import os
import signal
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from glowplug.cache.quarantine.traces import empty
from glowplug.cache.usage import read_files
from glowplug.engines.base import HttpReadiness
from glowplug.errors import GlowplugError
from glowplug.run import process
from glowplug.run.accusing import Accuser
from glowplug.run.attempt import Attempt
from glowplug.run.oom import oom_kills
from glowplug.timeline.outcome import Lookup
from glowplug.timeline.report import Event
from glowplug.units import format_seconds

if TYPE_CHECKING:
    from glowplug.run.attempt import Ended
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.run.started import Started
    from glowplug.run.weights import Weights

CRASHES = frozenset((signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE))
"""Signals that broken machine code causes."""


def live_to_the_end(start: Start, program: str, prepared: Prepared, started: Started) -> int:
    """Run the engine, and once more without the cache if need be. Blocks until it has ended.

    Args:
        start: what all steps share.
        program: the file that is run.
        prepared: what was done before.
        started: the engine's words and environment.

    Returns:
        The exit code of the last attempt.

    Raises:
        CannotStart: the kernel refuses the file.
    """
    killed = oom_kills()
    accuser = Accuser(start)
    attempt = Attempt(start, program, prepared, started, accuser)
    ended = attempt.live()
    if not _is_suspect(start, prepared, ended) or _is_out_of_memory(killed):
        attempt.finish(ended)
        return ended.exit_code
    weights = start.weights.again()
    try:
        return _once_more(start, attempt, ended, weights, sure=killed is not None or ended.signal != signal.SIGKILL)
    finally:
        weights.close()


def _once_more(start: Start, attempt: Attempt, ended: Ended, weights: Weights, *, sure: bool) -> int:
    """The second attempt, and what follows from it for the first."""
    prepared = attempt.prepared.settled()
    attempt.abandon(ended)
    generation = prepared.search.lookup.generation
    how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    after = f"generation {generation[:12]} was restored" if generation else "it used files of an earlier start on this node"
    reason = f"the engine died {format_seconds(ended.lived_s)} after {after} ({how})"
    try:
        weights.begin()
        started = weights.command()
    except GlowplugError as error:  # its weights are refused now; then it can't be started again either
        start.console.warn(error.line())
        attempt.finish(ended)
        return ended.exit_code
    stop = process.pending_stop()
    if stop is not None:
        attempt.finish(ended)
        return 128 + stop
    start.console.warn(f"{reason}: it is started once more without the cache")
    start.events.append(Event("cold fallback", start.clock.now_s(), generation, reason))
    accuser = Accuser(start)
    if sure:
        accuser.engine_died(prepared, ended, reason)
    cold = _without_cache(start, prepared, reason, spawned_s=ended.spawned_s)
    second = Attempt(replace(start, weights=weights), attempt.program, cold, started, accuser)
    last = second.live()
    if last.exit_code and not last.told and not last.was_ready:
        accuser.withdraw()
        start.console.warn(f"it died without the cache as well (exit code {last.exit_code}): the cache was not the cause")
    second.finish(last)
    return last.exit_code


def _is_suspect(start: Start, prepared: Prepared, ended: Ended) -> bool:
    """Whether the engine may have died of what lay in its live folder; see the module."""
    if not ended.exit_code or ended.told or process.pending_stop() is not None:
        return False
    number = ended.signal or max(0, ended.exit_code - 128)  # a shell in between turns signal n into exit code 128 + n
    if number in process.STOPPING:
        return False
    window_s = start.options.poison_window_s
    serves = isinstance(prepared.launch.readiness, HttpReadiness)
    waits = serves and ended.watched and not ended.was_ready
    if not window_s or (ended.lived_s > window_s and not waits):
        return False
    if not serves and (number not in CRASHES or _has_input()):
        return False
    return _has_used_the_cache(prepared.settled())


def _has_input() -> bool:
    """Whether the standard input is something that can't be read twice."""
    try:
        return not stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return False


def _has_used_the_cache(prepared: Prepared) -> bool:
    """Whether the engine has opened a file that lay in its live folder before, or may have."""
    if prepared.live is None or not prepared.before:
        return False
    read = read_files(prepared.live.path, prepared.before.values())
    return read is None or bool(read)


def _is_out_of_memory(killed: int | None) -> bool:
    return killed is not None and killed != oom_kills()


def _without_cache(start: Start, prepared: Prepared, reason: str, *, spawned_s: float) -> Prepared:
    """The same start with nothing in its live folder. Without a live folder, if that can't be emptied."""
    lookup = prepared.search.lookup
    if lookup.state == "restored":
        lookup = Lookup("refused", reason)
    search = replace(prepared.search, lookup=lookup, manifest=None, restored=None)
    cold = replace(prepared, search=search, before={}, late=None, lost_s=start.clock.now_s() - spawned_s)
    if prepared.live is None:
        return cold
    try:
        empty(prepared.live.path)
    except GlowplugError as error:
        start.console.warn(error.line())
        return replace(cold, live=None, search=replace(search, may_publish=False))
    return cold
