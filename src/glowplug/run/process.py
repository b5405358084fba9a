"""The engine as a child process: spawned, signalled, reaped.

The wrapper may be PID 1 of a container, so it reaps whatever is orphaned to it. Signals arrive as values (``sigwaitinfo``), not as
handlers, so none is lost and none interrupts other code. On a terminal the engine shares the wrapper's process group, and the
terminal itself delivers Ctrl-C to it; elsewhere it leads a group of its own, and every signal goes to the whole group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import GlowplugError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORWARDED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
    }
)
"""Signals that are passed on to the engine."""
STOPPING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Those among them that end a wrapper whose engine does not run."""
_AWAITED = FORWARDED | {signal.SIGCHLD}

_FROM_KERNEL = 0x80  # SI_KERNEL: the terminal sent it, to the whole foreground group
# Python ignores these for itself; a child must not inherit that.
_PYTHON_IGNORES = [number for name in ("SIGPIPE", "SIGXFSZ") if (number := getattr(signal, name, None))]


class CannotStart(GlowplugError):
    """The command can't be started; ``exit_code`` is what a shell would return: 127 not found, 126 not executable."""

    def __init__(self, message: str, *, exit_code: int, object: str, hint: str = "") -> None:  # noqa: A002
        super().__init__(message, object=object, hint=hint)
        self.exit_code = exit_code


class Caught(NamedTuple):
    """A signal that was waiting."""

    number: int
    from_terminal: bool


def find_program(name: str, env: Mapping[str, str]) -> str:
    """The file that a shell would run, by ``PATH``.

    Raises:
        CannotStart: nothing of that name (127), or nothing that may be executed (126).
    """
    if not name:
        raise CannotStart("the command is an empty word", exit_code=127, object="", hint="give the command after --")
    folders = [""] if "/" in name else (env.get("PATH") or os.defpath).split(os.pathsep)
    denied = ""
    for folder in folders:
        path = os.path.join(folder, name) if folder else name
        try:
            info = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode) and os.access(path, os.X_OK, effective_ids=True):
            return path
        denied = denied or path
    if denied:
        kind = "is a folder" if os.path.isdir(denied) else "is not executable"
        raise CannotStart(f"{denied}: {kind}", exit_code=126, object=denied, hint="chmod +x it, or name its interpreter")
    raise CannotStart(f"{name}: command not found", exit_code=127, object=name, hint="check the name and PATH")


def hold_standard_descriptors() -> None:
    """Put ``/dev/null`` where a standard descriptor is closed (``2>&-``): no pipe of ours may get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003  the lowest free number is this one


def block_signals() -> None:
    """From now on, and in every thread started later, the signals above wait for ``next_signal``."""
    # A parent that ignores it may have handed that down, and then the kernel would reap the engine and tell nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)


def unblock_signals() -> None:
    """Back to Python's own handling. What still waits was for an engine that has ended, and is dropped."""
    while next_signal(0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)


def next_signal(timeout_s: float | None = None) -> Caught | None:
    """Wait for a signal; None once the time is up, at once for 0."""
    info = signal.sigwaitinfo(_AWAITED) if timeout_s is None else signal.sigtimedwait(_AWAITED, timeout_s)
    return None if info is None else Caught(info.si_signo, info.si_code == _FROM_KERNEL)


def pending_stop() -> int | None:
    """The number of a signal that waits and means "end"; None if there is none. Leaves it waiting."""
    return min(filter(means_stop, signal.sigpending()), default=None)


def stop_came() -> bool:
    """Whether a signal that means "end" has come. Takes it, and all others that wait."""
    came = False
    while (caught := next_signal(0)) is not None:
        came |= means_stop(caught.number)
    return came


def means_stop(number: int) -> bool:
    """Whether a signal asks a wrapper whose engine does not run to end.

    One that this process was started to ignore (``nohup``, a script's ``&``) does not.
    """
    return number in STOPPING and signal.getsignal(number) is not signal.SIG_IGN


@dataclass
class Child:
    """A running engine.

    Attributes:
        pid: its process id.
        group: it leads a process group of its own.
    """

    pid: int
    group: bool
    _status: int | None = None

    @classmethod
    def spawn(cls, program: str, argv: Sequence[str], env: Mapping[str, str], *, stdout: int, stderr: int, group: bool) -> Child:
        """Start it. A script without a ``#!`` line is run by ``/bin/sh``, as a shell does.

        Args:
            program: the file to execute.
            argv: its arguments, the first included.
            env: its whole environment.
            stdout: descriptor that becomes its standard output.
            stderr: descriptor that becomes its standard error.
            group: give it a process group of its own.

        Raises:
            CannotStart: the kernel refuses the file.
        """
        actions = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]

        def start(path: str, words: list[str]) -> int:
            extra: dict[str, int] = {"setpgroup": 0} if group else {}
            return os.posix_spawn(
                path,
                words,
                dict(env),
                file_actions=actions,
                setsigmask=(),
                setsigdef=_PYTHON_IGNORES,
                **extra,  # type: ignore[arg-type]
            )

        try:
            try:
                pid = start(program, list(argv))
            except OSError as error:
                if error.errno != 8:  # ENOEXEC
                    raise
                pid = start("/bin/sh", ["/bin/sh", program, *argv[1:]])
        except FileNotFoundError:
            raise CannotStart(
                f"{program}: its interpreter does not exist", exit_code=127, object=program, hint="look at its first line"
            ) from None
        except OSError as error:
            raise CannotStart(f"{program}: {error.strerror}", exit_code=126, object=program) from None
        return cls(pid, group)

    def send(self, caught: Caught) -> None:
        """Pass a signal on, unless the terminal has delivered it already."""
        if caught.from_terminal and not self.group:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.group:
                os.killpg(self.pid, caught.number)
            else:
                os.kill(self.pid, caught.number)

    def end_group(self) -> None:
        """Kill what an ended engine has left in its process group: workers that hold its devices and ports."""
        if self.group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    @property
    def signal(self) -> int:
        """The number of the signal that ended it; 0 if it exited, or runs."""
        return os.WTERMSIG(self._status) if self._status is not None and os.WIFSIGNALED(self._status) else 0

    def reap(self) -> int | None:
        """Collect every ended child; the engine's exit code once it has ended (128 + n for signal n), else None."""
        everyone = os.getpid() == 1
        while self._status is None:
            try:
                pid, status = os.waitpid(-1 if everyone else self.pid, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == self.pid:
                self._status = status
            elif not pid:
                break
        if self._status is None:
            return None
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code
