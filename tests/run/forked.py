"""``python -m glowplug`` without what Python and its imports cost: each start is forked from a process that has loaded it already.

A start takes 20 ms of a processor in place of 250, and the tests make a thousand. What is forked is as a fresh process is: it has
its own environment, folder, descriptors, random numbers and clock, nobody's threads, and the server has run nothing. What happens
before ``glowplug`` is loaded can't be tested so: interpreter's options, ``PYTHON*`` variables, programs in front of it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import glowplug

_SOURCE = Path(glowplug.__file__).parents[1]
_MOST_BYTES = 200_000
_STATUS = struct.Struct("i")
_LOADED = (
    "botocore.session", "cryptography.hazmat.primitives.asymmetric.ed25519", "glowplug.cli.cache", "glowplug.cli.main",
    "glowplug.cli.run", "glowplug.run.publishing", "glowplug.run.supervisor", "glowplug.store.s3", "securesystemslib.dsse",
    "zstandard",
)  # fmt: skip


class Forked(subprocess.Popen):
    """``subprocess.Popen``, but the process is forked from the server.

    Args:
        words: what comes after ``python -m glowplug``.
        env: its whole environment.
        popen: as ``Popen`` takes them; pipes, files and ``cwd`` alone.
    """

    def __init__(self, words, *, env, **popen):
        super().__init__([os.fspath(word) for word in words], env=env, **popen)

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest,
    ):  # fmt: skip
        del executable, preexec_fn, close_fds, pass_fds, startupinfo, creationflags, shell, rest
        self._status, theirs = socket.socketpair()
        asked = {"words": list(map(os.fsdecode, args)), "env": dict(env), "cwd": os.fspath(cwd or os.getcwd())}
        standard = [theirs_or if theirs_or != -1 else number for number, theirs_or in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            socket.send_fds(_server(), [json.dumps(asked).encode()], [*standard, theirs.fileno()])
        finally:
            theirs.close()
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self.pid = _STATUS.unpack(self._status.recv(_STATUS.size))[0]
        self._child_created = True

    def _try_wait(self, wait_flags):
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        data = self._status.recv(_STATUS.size)
        self._status.close()
        return self.pid, _STATUS.unpack(data)[0]

    def _internal_poll(self, *_, **__):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def run(words, *, env, input=None, timeout=None, **popen) -> subprocess.CompletedProcess:  # noqa: A002  as subprocess.run
    """As ``subprocess.run``."""
    if input is not None:
        popen["stdin"] = subprocess.PIPE
    with Forked(words, env=env, **popen) as process:
        try:
            out, error = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)


_connection: socket.socket | None = None


def _server() -> socket.socket:
    """The way to this process's server, which is started at the first call and ends with this process."""
    global _connection
    if _connection is None:
        _connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GLOWPLUG", "AWS"))}
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=environment | {"PYTHONPATH": str(_SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        atexit.register(_end, os.getpid(), process)
    return _connection


def _end(owner: int, process: subprocess.Popen) -> None:
    if os.getpid() == owner and _connection is not None:
        _connection.close()
        process.wait(10)


# --- the server


def serve(requests: socket.socket) -> None:
    """Fork for every request, and tell the exit status of each child, until nobody asks any more. One thread."""
    for name in _LOADED:
        importlib.import_module(name)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that becomes readable when the child has ended
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if isinstance(ready, int):
                pid, status = running.pop(ready)
                os.close(ready)
                status.send(_STATUS.pack(os.waitpid(pid, 0)[1]))
                status.close()
                continue
            data, descriptors, *_ = socket.recv_fds(requests, _MOST_BYTES, 4)
            if not data:
                return
            status = socket.socket(fileno=descriptors.pop())
            pid = os.fork()
            if not pid:
                _become(json.loads(data), descriptors, requests)
            for descriptor in descriptors:
                os.close(descriptor)
            status.send(_STATUS.pack(pid))
            running[os.pidfd_open(pid)] = pid, status


def _become(asked: dict, standard: list[int], requests: socket.socket) -> None:
    """The child, from here to its end."""
    import glowplug.cli.run
    from glowplug.entry import main
    from glowplug.run.clock import Clock

    code = 1
    try:
        requests.close()
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Python looks at its descriptors when it makes these.
        sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        glowplug.cli.run._CLOCK = Clock()
        sys.argv = ["glowplug", *asked["words"]]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  as the interpreter does at its end
        import traceback

        traceback.print_exc()
    finally:
        import threading

        threading._shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    serve(socket.socket(fileno=int(sys.argv[1])))
