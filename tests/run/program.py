"""``python -m glowplug`` as its users start it, in a process of its own (``forked``) and with a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import glowplug
from testbed.vllm_env import dev_cache
from tests.run import forked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GLOWPLUG = (sys.executable, "-m", "glowplug")
SOURCE = Path(glowplug.__file__).parents[1]
TIMEOUT_S = 60.0
_PLAIN = {"input", "timeout", "stdin", "stdout", "stderr", "cwd"}
NO_AWS = {
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}


BYTECODE = {"PYTHONPYCACHEPREFIX": str(dev_cache() / "bytecode")}
"""For the environment of every Python that runs our modules, without ``PYTHONDONTWRITEBYTECODE``: to compile them anew in each of
hundreds takes half of its time. Never for a real engine, which would no longer find the bytecode that lies in its environment."""


@dataclass(frozen=True)
class Ended:
    """What is left of a program that has ended."""

    code: int
    out: bytes
    err: str
    report: dict | None = None

    @property
    def ours(self) -> list[str]:
        """The single lines that Glowplug itself said."""
        return [line.removeprefix("glowplug: ") for line in self.err.splitlines() if line.startswith("glowplug: ")]

    def said(self, text: str) -> list[str]:
        """Those of them that hold a text."""
        return [line for line in self.ours if text in line]


class Running:
    """A program that runs. Its output can be waited for."""

    def __init__(self, process: subprocess.Popen, report: Path) -> None:
        self._report = report
        self.process = process
        self._news = threading.Condition()
        self._text = {"out": b"", "err": b""}
        self._ended: set[str] = set()
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream))
            for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str, stream: str = "err", times: int = 1) -> None:
        """Until it has written the text so many times."""
        with self._news:
            met = self._news.wait_for(lambda: self._text[stream].count(text.encode()) >= times or stream in self._ended, TIMEOUT_S)
            met = met and self._text[stream].count(text.encode()) >= times
        assert met, f"{text!r} did not appear; {self._text}"

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait until it has ended, with its input closed."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout_s)
        self._close()
        return Ended(self.process.returncode, self._text["out"], self._text["err"].decode(), read_report(self._report))

    def _close(self) -> None:
        self.process.wait()
        for reader in self._readers:
            reader.join(10)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, name: str, stream) -> None:
        while data := os.read(stream.fileno(), 65536):
            with self._news:
                self._text[name] += data
                self._news.notify_all()
        with self._news:
            self._ended.add(name)
            self._news.notify_all()


@dataclass
class Program:
    """``glowplug`` on a machine where nothing else is: home, store, live folder and report lie in one folder."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    """Variables for every call."""

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def live(self) -> Path:
        return self.folder / "live"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    @property
    def keys(self) -> Path:
        """The user's own."""
        return self.home / ".config" / "glowplug" / "keys"

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "LOGNAME": "nobody-else",  # torch's folder below /tmp has the user's name
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(SOURCE),
            **BYTECODE,
            **NO_AWS,
            **self.extra,
        }

    def __call__(self, *words: str, env: Mapping[str, str | None] | None = None, prefix: Sequence[str] = (), **options) -> Ended:
        """Call any command and wait for its end."""
        given = {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        how = {"timeout": TIMEOUT_S, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | given | options
        variables = self._with(env)
        if self._can_be_forked(variables, prefix, options):
            done = forked.run(words, env=variables, **how)
        else:
            done = subprocess.run([*prefix, *GLOWPLUG, *words], env=variables, check=False, **how)
        return Ended(done.returncode, done.stdout or b"", (done.stderr or b"").decode(), read_report(self.report))

    def run(self, *command: str, options: Sequence[str] = (), **rest) -> Ended:
        """Call ``glowplug run`` with the store, the live folder and the report of this machine."""
        self.report.unlink(missing_ok=True)
        return self(*self.run_words(command, options), **rest)

    def begin(
        self,
        *command: str,
        options: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        prefix: Sequence[str] = (),
        **popen,
    ) -> Running:
        """As ``run``, but without waiting for the end."""
        self.report.unlink(missing_ok=True)
        words, variables = self.run_words(command, options), self._with(env)
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen
        if self._can_be_forked(variables, prefix, popen):
            return Running(forked.Forked(words, env=variables, **given), self.report)
        return Running(subprocess.Popen([*prefix, *GLOWPLUG, *words], env=variables, **given), self.report)

    @staticmethod
    def _can_be_forked(env: Mapping[str, str], prefix: Sequence[str], options: Mapping[str, object]) -> bool:
        """Whether nothing is asked for that only a Python of its own can have."""
        special = {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
        usual = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(SOURCE), **BYTECODE}
        return not prefix and special == usual and options.keys() <= _PLAIN

    def _with(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        """The environment with some variables set, and those that are None unset."""
        return {name: value for name, value in (self.env | dict(env or {})).items() if value is not None}

    def run_words(self, command: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        given = ["--store", f"file://{self.store}", "--cache-dir", str(self.live), "--report", str(self.report), "--settle", "0.1s"]
        return ["run", *given, *options, "--", *command]

    def forget(self) -> None:
        """Become a new node: nothing lies on its disk."""
        assert self.live.exists()
        self.live.rename(self.folder / f"live-{time.monotonic_ns()}")

    def forget_live_files(self) -> None:
        """Become a new pod on the same node: the live folders are gone, the notes beside them are not."""
        for folder in self.live.iterdir():
            if not folder.name.startswith("."):
                shutil.rmtree(folder)

    def published(self) -> list[Path]:
        """The generations in the store."""
        return sorted(self.store.glob("v1/*/generations/*.json"))

    def latest(self) -> str:
        """The generation that readers get."""
        [pointer] = self.store.glob("v1/*/latest")
        return json.loads(pointer.read_bytes())["generation"]

    def half_written(self) -> list[str]:
        """Temporary files that somebody has left, in the store or in live folders."""
        spools = [self.store / ".glowplug" / "spool", *self.folder.glob("live*/*/.glowplug")]
        return [path.name for spool in spools if spool.exists() for path in spool.iterdir() if path.name not in _NOTES]


_NOTES = ("lock", "installed.json", "sources.json")


def read_report(path: Path) -> dict | None:
    return json.loads(path.read_text()) if path.is_file() else None


def eventually(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for something that sends no event, such as a file of another process."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
