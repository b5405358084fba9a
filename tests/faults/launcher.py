"""``glowplug`` in this process, counted step by step, and killed at one of them: ``launcher.py OPTIONS -- WORDS``.

A step is an effect on the world: a file opened for writing, half of a write, a rename, a link, a folder, a removal, a lock, a
connection, a request sent, an answer that is there and not yet read, a process spawned. Python's audit hooks tell of nearly all of
them just before they happen, so a kill at step n is one after step n-1 and before step n, and nothing in the program knows of it.
What the audit hooks don't tell of (``os.write``, the wait for an answer) is counted by standing in front of the two functions.

``--kill N``    SIGKILL to this process at its N-th step.
``--steps FILE``  write the names of all steps there at the end, one a line.
``--shift SECONDS``  a wall clock that is wrong by so much, as far as Python's own functions tell the time.
``--fork``      serve: read lines of JSON (options, words, environment) from standard input, and do each in a fork.
"""

from __future__ import annotations

import argparse
import datetime as dt
import http.client
import importlib
import itertools
import json
import os
import select
import signal
import sys
import time

_EFFECTS = frozenset({
    "fcntl.flock", "http.client.send", "os.chmod", "os.chown", "os.link", "os.mkdir", "os.posix_spawn", "os.remove", "os.rename",
    "os.rmdir", "os.symlink", "os.truncate", "os.utime", "shutil.copyfile", "shutil.rmtree", "socket.connect",
})  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ANSWER_S = 5.0


class Steps:
    """Counts this process's effects, and ends it at one of them. Thread-safe: the count is one atomic call."""

    def __init__(self, kill_at: int) -> None:
        self.names: list[str] = []
        self._kill_at = kill_at
        self._numbers = itertools.count(1)
        self._pid = os.getpid()

    def install(self) -> None:
        """Begin to count; there is no way back."""
        sys.addaudithook(self._heard)
        real_write, real_answer = os.write, http.client.HTTPConnection.getresponse

        def write(descriptor: int, data: bytes) -> int:
            if descriptor <= 2 or len(data) < 2:  # words for the user are no effect on the world
                return real_write(descriptor, data)
            written = real_write(descriptor, memoryview(data)[: len(data) // 2])
            self.step("half a write")
            return written

        def getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
            select.select([connection.sock], [], [], _ANSWER_S)
            self.step("an unread answer")
            return real_answer(connection)

        os.write = write  # type: ignore[assignment]
        http.client.HTTPConnection.getresponse = getresponse  # type: ignore[method-assign]

    def step(self, name: str) -> None:
        """One more has been reached."""
        if os.getpid() != self._pid:
            return
        self.names.append(name)
        if next(self._numbers) == self._kill_at:
            os.kill(self._pid, signal.SIGKILL)

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self.step(f"open {path!r}")
        elif event in _EFFECTS:
            self.step(f"{event} {arguments[0]!r}" if isinstance(arguments[0], (str, os.PathLike)) else event)


def shift_clock(by_s: float) -> None:
    """Make the wall clock wrong; the monotonic one, and the kernel's, stay as they are."""
    real, real_ns, real_gmtime = time.time, time.time_ns, time.gmtime

    class Shifted(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.fromtimestamp(real() + by_s, tz)

        @classmethod
        def utcnow(cls) -> dt.datetime:
            return dt.datetime.fromtimestamp(real() + by_s, dt.UTC).replace(tzinfo=None)

    time.time = lambda: real() + by_s
    time.time_ns = lambda: real_ns() + int(by_s * 1e9)
    time.gmtime = lambda seconds=None: real_gmtime(real() + by_s if seconds is None else seconds)
    dt.datetime = Shifted  # type: ignore[misc]


def main() -> None:
    """Do as told, once or many times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", type=int, default=0)
    parser.add_argument("--steps", default="")
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.fork:
        _serve()
    _run(options.kill, options.steps, options.shift, options.words)


def _run(kill_at: int, steps_file: str, shift_s: float, words: list[str]) -> None:
    if shift_s:
        shift_clock(shift_s)  # before anybody takes a function of the clock for himself
    from glowplug.cli.main import main as glowplug

    sys.argv = ["glowplug", *words]
    steps = Steps(kill_at)
    steps.install()
    try:
        glowplug()
    finally:
        names = list(steps.names)
        if steps_file:
            with open(steps_file, "w", encoding="utf-8") as file:
                file.write("".join(f"{name}\n" for name in names))


def _serve() -> None:
    """Fork for every line, so that what Python costs to start is paid once. The parent runs nothing and has one thread."""
    for name in ("cryptography.hazmat.primitives.asymmetric.ed25519", "securesystemslib.dsse", "zstandard"):
        importlib.import_module(name)
    import glowplug.cache.capture
    import glowplug.cli.cache
    import glowplug.cli.main
    import glowplug.cli.run
    import glowplug.run.publishing
    import glowplug.run.supervisor
    import glowplug.store.s3
    import glowplug.store.s3_session  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _become(asked)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)
    sys.exit()


def _become(asked: dict[str, object]) -> None:
    environment = asked["env"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    null, out = os.open(os.devnull, os.O_RDONLY), os.open(str(asked["out"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    alive = os.open(str(asked["alive"]), os.O_WRONLY)
    os.set_inheritable(alive, True)  # noqa: FBT003  held by this process and its engine, so a reader learns when both have ended
    _run(int(str(asked["kill"])), str(asked["steps"]), float(str(asked["shift"])), list(asked["words"]))  # type: ignore[call-overload]
    os._exit(0)


if __name__ == "__main__":
    main()
