"""One start of a real vLLM, timed from outside: from the spawn of its command to the first good answer of ``/health``."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_POLL_S = 0.05
_READY_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0
_LOG_LINES = 40
_LOADING = re.compile(r"(?:Loading weights took|Model loading took [0-9.]+ GiB memory and) ([0-9.]+) seconds")


class StartFailed(Exception):
    """The engine did not become ready; the text ends with its output."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a start took.

    Attributes:
        ready_s: from the spawn to ready.
        loading_s: what vLLM itself says that loading took, waiting included; None where it does not say.
        tokens: of a completion with temperature 0.
        log: all that it printed.
    """

    ready_s: float
    loading_s: float | None
    tokens: tuple[int, ...]
    log: str


def start(
    command: Sequence[str], *, env: Mapping[str, str], log: Path, model: str, until: Callable[[], bool] | None = None
) -> Started:
    """Start, wait until ready, ask for one completion, and stop.

    Args:
        command: with ``{port}`` where the port goes.
        env: the whole environment.
        log: takes the output.
        model: its served name.
        until: it is not stopped before this is true; asked after the time was taken.

    Raises:
        StartFailed: it ended or took too long.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    words = [word.replace("{port}", str(port)) for word in command]
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() - begun > _READY_TIMEOUT_S:
                end = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
                raise StartFailed(f"{' '.join(words)} was not ready. The end of its output:\n{end}")
            time.sleep(_POLL_S)
        ready_s = time.monotonic() - begun
        tokens = _complete(port, model)
        while until is not None and not until() and time.monotonic() - begun < _READY_TIMEOUT_S:
            time.sleep(_POLL_S)
    finally:
        _stop(process)
    text = log.read_text(errors="replace")
    loading = _LOADING.search(text)
    return Started(ready_s, float(loading[1]) if loading else None, tokens, text)


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return _request(port, "GET", "/health", "")[0] == http.client.OK
    return False


def _complete(port: int, model: str) -> tuple[int, ...]:
    document = {"model": model, "prompt": "a glow plug lets", "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    status, body = _request(port, "POST", "/v1/completions", json.dumps(document))
    if status != http.client.OK:
        raise StartFailed(f"the completion was answered with {status}: {body[:500]}")
    return tuple(json.loads(body)["choices"][0]["token_ids"])


def _request(port: int, method: str, path: str, document: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, document or None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
