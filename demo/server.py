"""One real vLLM under `glowplug run`, from its command to its exit, as an operator would watch it from outside.

Only what any user has is used: the command line, the HTTP endpoint, the report file and a signal. Nothing here reaches into
Glowplug.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from glowplug.errors import GlowplugError
from glowplug.timeline.report import StartReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

READY_TIMEOUT_S = 900.0
PUBLISH_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.25
_HEARTBEAT_S = 10.0
_LOG_LINES = 30


class DemoFailed(Exception):
    """The demo cannot go on; the text says what was seen."""


@dataclass
class Server:
    """A vLLM that serves one model; use it as a context manager.

    Attributes:
        vllm: the ``vllm`` command.
        model: the folder of the model.
        store: the store's URL.
        folder: holds this start's live cache, log and report; must not exist.
        env: its whole environment.
        say: prints one line of progress.
        glowplug: the ``glowplug`` command; the one beside this Python if None.
    """

    vllm: Path
    model: Path
    store: str
    folder: Path
    env: Mapping[str, str]
    say: Callable[[str], None]
    glowplug: Path | None = None
    port: int = field(init=False)
    process: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.port = _free_port()

    @property
    def log(self) -> Path:
        """Everything that vLLM and Glowplug print."""
        return self.folder / "output.log"

    @property
    def command(self) -> list[str]:
        """The whole command line."""
        options = ["--store", self.store, "--cache-dir", str(self.folder / "cache"), "--report", str(self.folder / "report.json")]
        limits = ["--max-model-len", "256", "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", str(self.port)]
        glowplug = str(self.glowplug or Path(sys.executable).with_name("glowplug"))
        return [glowplug, "run", *options, "--", str(self.vllm), "serve", str(self.model), "--served-model-name", "tiny", *limits]

    def __enter__(self) -> Self:
        self.folder.mkdir()
        with self.log.open("wb") as output:
            # A session of its own: Ctrl-C then reaches this program alone, which stops the server in good order.
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Wait until ``/health`` answers 200.

        Raises:
            DemoFailed: the server ended, or was not ready in time.
        """

        def is_ready() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._request("GET", "/health")[0] == http.client.OK
            return False

        self._wait(is_ready, "ready", READY_TIMEOUT_S)

    def complete(self, prompt: str, tokens: int) -> int:
        """Ask for a completion; returns how many tokens came."""
        status, body = self._request("POST", "/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": tokens})
        if status != http.client.OK:
            raise DemoFailed(f"the completion was answered with {status}: {body[:300].decode(errors='replace')}")
        return int(json.loads(body)["usage"]["completion_tokens"])

    def wait_for_report(self) -> StartReport:
        """Wait until the report says how the publication ended.

        Raises:
            DemoFailed: it did not say so in time.
        """

        def is_concluded() -> bool:
            report = self.report()
            return report is not None and report.publish is not None

        self._wait(is_concluded, "finished with its cache", PUBLISH_TIMEOUT_S)
        report = self.report()
        if report is None:
            raise DemoFailed("the report is gone")
        return report

    def report(self) -> StartReport | None:
        """The report as it is now; None before it was written."""
        with contextlib.suppress(OSError, ValueError, GlowplugError):
            return StartReport.from_json(json.loads((self.folder / "report.json").read_bytes()))
        return None

    def stop(self) -> int:
        """Stop the server with SIGTERM, as Kubernetes does; returns the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise DemoFailed(f"the server did not stop within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None

    def _wait(self, condition: Callable[[], bool], state: str, timeout_s: float) -> None:
        begun = spoken = time.monotonic()
        said = ""
        while not condition():
            now = time.monotonic()
            if self.process is None or self.process.poll() is not None:
                raise DemoFailed(f"the server ended before it was {state}. The end of its output:\n{self._log_end(_LOG_LINES)}")
            if now - begun > timeout_s:
                end = self._log_end(_LOG_LINES)
                raise DemoFailed(f"the server was not {state} within {timeout_s:.0f} s. The end of its output:\n{end}")
            if now - spoken >= _HEARTBEAT_S:
                spoken, last_line = now, self._last_line()
                self.say(f"  ... {last_line}" if last_line != said else f"  ... {now - begun:.0f} s")
                said = last_line
            time.sleep(_POLL_S)

    def _last_line(self) -> str:
        """What the server said last, without the stamps that its lines begin with."""
        words = self._log_end(1).rpartition("] ")[2].split()
        return " ".join(words)[:90]

    def _log_end(self, lines: int) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _request(self, method: str, path: str, document: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(document) if document else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
