"""The supervisor: fetch, restore, spawn, watch, report, publish. One start from its first moment to the engine's exit.

Threads: the main thread waits for signals and for the engine's end, and does nothing else; one thread restores before the spawn;
some fetch weights from the first moment on; one or two pass the output through; one watches for readiness, reports and publishes.
None of them can stop the engine from starting or make it wait for longer than the deadlines say, and the exit code is always the
engine's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from glowplug.engines.base import ExitReadiness, Launch
from glowplug.engines.generic.log import GenericLog
from glowplug.engines.registry import recognise
from glowplug.errors import UsageError
from glowplug.run import process
from glowplug.run.clock import Clock
from glowplug.run.console import Console
from glowplug.run.fallback import live_to_the_end
from glowplug.run.preparing import Preparing
from glowplug.run.process import CannotStart
from glowplug.run.restoring import Prepared
from glowplug.run.start import Start, describe_error
from glowplug.run.weights import Weights
from glowplug.timeline.report import EngineInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.run.options import RunOptions
    from glowplug.run.started import Started


def supervise(options: RunOptions, argv: Sequence[str], env: Mapping[str, str], *, clock: Clock | None = None) -> int:
    """Run a command with a shared compile cache.

    Blocks until the command has ended. Changes this process's signal mask; call it from the main thread of a process of its own.

    Args:
        options: how.
        argv: the command, at least one word.
        env: the environment it gets.
        clock: the start's clock; one that begins now if None.

    Returns:
        The command's exit code; 128 + n if signal n ended it; 126 or 127 if it could not be started.

    Raises:
        UsageError: the command line or the environment is wrong; nothing was started.
        IntegrityError: the checkpoint is not what somebody trusted has sealed; nothing was started.
    """
    process.hold_standard_descriptors()
    clock, console = clock or Clock(), Console(2, options.quiet)
    start = Start(options, env, clock, console, Weights(options, tuple(argv), env, console, clock))
    try:
        return _go(start, process.find_program(argv[0], env))
    except CannotStart as error:
        console.warn(error.line())
        return error.exit_code


def _go(start: Start, program: str) -> int:
    process.block_signals()
    prepared = None
    try:
        start.weights.begin()
        started = start.weights.command()
        launch = _recognise(start, started)
        prepared = Preparing(start).prepare(Prepared(launch))
        for notice in launch.notices if start.options.cache else ():
            start.console.warn(notice)
        stop = process.pending_stop()
        if stop is not None:
            return 128 + stop  # it came before there was an engine to pass it on to
        return live_to_the_end(start, program, prepared, started)
    finally:
        start.weights.close()
        if prepared is not None:
            prepared.close()
        process.unblock_signals()


def _recognise(start: Start, started: Started) -> Launch:
    try:
        return recognise(started.argv, started.key_env, os.getcwd(), engine=start.options.engine)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
        start.console.warn(f"cold start: the command could not be understood: {describe_error(error)}")
        return Launch(
            EngineInfo("generic", None), {}, relocatable=False, families=(), readiness=ExitReadiness(), ranks=1, log=GenericLog
        )
