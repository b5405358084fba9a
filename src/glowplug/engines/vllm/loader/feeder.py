"""Streams without a wrapper: one process of the engine starts a feeder, and all of them on this node attach to it.

Standard library only. The feeder is Glowplug itself, ``glowplug weights serve``, in a process of its own with requirements of its
own; it ends when all ranks are done or gone, or when this process is. Who starts it is decided by a lock that the kernel releases
whatever becomes of its holder. The socket's path is the same for all ranks of one engine and one checkpoint, and for nobody
else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from glowplug.engines.vllm.host_memory import beside_weights
from glowplug.engines.vllm.loader.settings import COMMAND
from glowplug.errors import IncompatibleError, LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from glowplug.engines.vllm.loader.ranks import Place
    from glowplug.engines.vllm.loader.settings import LoaderSettings

_NEEDED = ("typer", "botocore", "rich")  # what ``python -m glowplug`` imports beside itself
_POLL_S = 0.02
_LAST_WORDS_BYTES = 2000


def feeder(uri: str, place: Place, settings: LoaderSettings, *, env: Mapping[str, str] | None = None) -> str:
    """The socket of this engine's feeder for a checkpoint; starts it if no other rank has.

    Blocks until it listens, at most ``settings.attach_timeout_s``.

    Raises:
        IncompatibleError: there is no ``glowplug`` to start here.
        LocalError: it ended before it listened, or took too long; with its own words.
    """
    env = os.environ if env is None else env
    folder = _private_folder(env)
    name = hashlib.sha256(f"{uri}\0{place.engine}\0{place.ranks}".encode()).hexdigest()[:16]
    path = os.path.join(folder, f"{name}.sock")
    until_s = time.monotonic() + settings.attach_timeout_s
    with _lock(os.path.join(folder, f"{name}.lock"), until_s):
        if _listens(path):
            return path
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a feeder that was killed
        words = [*_command(env), "weights", "serve", uri, "--socket", path, "--ranks", str(place.ranks)]
        words += ["--engine-memory", str(beside_weights(place.ranks, on_cpu=place.on_cpu, env=env))]
        words += ["--on-cpu"] if place.on_cpu else []
        words += ["--concurrency", str(settings.concurrency)] if settings.concurrency else []
        words += ["--host-memory", settings.memory] if settings.memory != "auto" else []
        _start(words, path, until_s, env)
    return path


def _start(words: list[str], path: str, until_s: float, env: Mapping[str, str]) -> None:
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed below; a pipe that nobody reads could fill
    # Its standard input is ours: when this process ends, however, the feeder reads the end of it, and ends too.
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=said, env=dict(env), start_new_session=True)
    threading.Thread(target=_reap, args=(process,), name="glowplug-feeder", daemon=True).start()
    with said:
        while not _listens(path):
            ended = process.poll() is not None
            if not ended and time.monotonic() < until_s:
                time.sleep(_POLL_S)
                continue
            if not ended:
                process.kill()
            said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            words_of_it = " ".join(said.read().decode(errors="replace").split())
            what = f"ended with exit code {process.returncode}" if ended else "was not ready in time"
            raise LocalError(f"glowplug weights serve {what}: {words_of_it or 'it said nothing'}", object=words[-1])


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end, so that no zombie is left in the engine, and keep our end of its standard input open until then."""
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _command(env: Mapping[str, str]) -> list[str]:
    """The words that start ``glowplug``."""
    if line := env.get(COMMAND):
        return shlex.split(line)
    package = os.path.dirname(os.path.abspath(__file__)).rpartition(f"{os.sep}engines{os.sep}")[0]
    launcher = os.path.join(os.path.dirname(package), "..", "..", "bin", "glowplug")  # of a folder that inject wrote
    if os.access(launcher, os.X_OK):
        return [os.path.normpath(launcher)]
    if all(importlib.util.find_spec(name) for name in (*_NEEDED, "glowplug")):
        return [sys.executable, "-m", "glowplug"]
    raise IncompatibleError(
        "nothing streams this checkpoint: there is no wrapper, and no glowplug to start beside vLLM",
        object=COMMAND,
        hint="start the engine with glowplug run, install glowplug into vLLM's environment, or set GLOWPLUG_COMMAND",
    )


def _private_folder(env: Mapping[str, str]) -> str:
    """A folder that is this user's alone, short enough for a socket's path (107 bytes)."""
    path = os.path.join(env.get("TMPDIR") or "/tmp", f"glowplug-{os.getuid()}")  # noqa: S108  made private below
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise LocalError(f"{path} is not a folder of this user alone", object=path, hint="remove it, or set TMPDIR")
    return path


@contextlib.contextmanager
def _lock(path: str | Path, until_s: float) -> Iterator[None]:
    """Hold a lock file. Raises LocalError once ``until_s`` has come."""
    with open(path, "w", encoding="ascii") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise LocalError("another rank is still starting the feeder", object=str(path)) from None
                time.sleep(_POLL_S)
            else:
                break
        yield


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
