"""What a person sees of the set-up: one line a step, with the seconds it took, and the end of its log where it fails.

A step's own output goes to a log file, never to the screen: package managers print hundreds of lines, and none matters until one
does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING, TypeAlias

from testbed.vllm_env import ROOT, dev_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Command: TypeAlias = "Sequence[str | Path]"
"""A program and its arguments."""

_STARTED = time.monotonic()
_HEARTBEAT_S = 15.0
_LOG_LINES = 25
_HELD: list[int] = []
"""Descriptors of the locks that this process holds."""


class SetupError(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def say(text: str) -> None:
    """Print a line after the seconds since the start."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


def run_step(name: str, command: Command, *, advice: str, env: Mapping[str, str] | None = None) -> None:
    """Run a command, from the root of the checkout, as one step of the set-up.

    Args:
        name: what the step does, for the person who waits.
        command: program and arguments.
        advice: what to do if it fails.
        env: variables to set on top of this process's.

    Raises:
        SetupError: it failed; the error carries the last lines of its log.
    """
    say(f"{name} ...")
    begun = time.monotonic()
    logs = dev_cache() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{''.join(c if c.isalnum() else '-' for c in name)[:40]}.log"
    with log.open("w", encoding="utf-8") as output:
        output.write(f"$ {shlex.join(map(str, command))}\n")
        output.flush()
        # A session of its own, so that Ctrl-C reaches it through us alone and its own children end with it.
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=ROOT,
            start_new_session=True,
            pass_fds=_HELD,  # if this process is killed, the locks stay until the command that works under them has ended too
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=_HEARTBEAT_S)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{name}: {time.monotonic() - begun:.0f} s so far")
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if code != 0:
        tail = "\n".join(f"    {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        raise SetupError(f"{name} failed (exit code {code}). The end of {log}:\n{tail}\n{advice}")
    say(f"{name}: done in {time.monotonic() - begun:.1f} s")
    log.unlink()


@contextlib.contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold the lock ``name``, so that two set-ups never build the same thing at once.

    The kernel frees it when this process and the step that it may be running have ended, however they end.
    """
    locks = dev_cache() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another set-up is working on {name}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        _HELD.append(file.fileno())
        try:
            yield
        finally:
            _HELD.remove(file.fileno())
