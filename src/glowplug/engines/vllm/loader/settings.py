"""What the loader was told: by the wrapper through the environment, by the user through ``--model-loader-extra-config``.

Standard library only. The user's JSON may hold keys of vLLM's own loader beside ours; those are handed on, and vLLM refuses what it
does not know.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "GLOWPLUG_WEIGHTS_SOCKET"
"""Where the wrapper's buffer is handed out."""
URI = "GLOWPLUG_WEIGHTS_URI"
"""The checkpoint in that buffer, to stream it again where the buffer is gone."""
FOLDER = "GLOWPLUG_WEIGHTS_FOLDER"
"""The folder that stands for this checkpoint in vLLM's command."""
RANKS = "GLOWPLUG_WEIGHTS_RANKS"
"""How many processes of this node the wrapper expects to attach."""
COMMAND = "GLOWPLUG_COMMAND"
"""How to start ``glowplug``, as a shell line."""

_RUNAI = ("concurrency", "memory_limit", "distributed")  # what a Run:ai pod spec may hold; harmless here


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """How one loader gets its weights.

    Attributes:
        uri: what to stream instead of the model's own path; empty for that.
        pin: register the shared buffer with CUDA, so that copies to the device need no bounce buffer.
        attach_timeout_s: how long a feeder may take until it has read the headers.
        concurrency: requests at once, for a feeder of our own; 0 to let it find out.
        memory: buffer of a feeder of our own: ``auto``, ``full`` or bytes.
    """

    uri: str = ""
    pin: bool = False
    attach_timeout_s: float = 300.0
    concurrency: int = 0
    memory: str = "auto"


def read_settings(extra: Mapping[str, Any]) -> tuple[LoaderSettings, dict[str, Any]]:
    """Our settings, and the keys that are not ours.

    Raises:
        ValueError: a value of ours that makes no sense; vLLM shows it and ends.
    """
    others = {name: value for name, value in extra.items() if name not in (*_RUNAI, "uri", "pin", "attach_timeout_s", "memory")}
    concurrency = extra.get("concurrency", 0)
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 0:
        raise ValueError(f"model_loader_extra_config: concurrency is {concurrency!r}; give a number of requests")
    memory = extra.get("memory", extra.get("memory_limit", "auto"))
    if isinstance(memory, int) and not isinstance(memory, bool):
        memory = str(memory) if memory > 0 else "auto"  # Run:ai's -1 is "no limit", its 0 "as little as possible"
    uri, pin, timeout_s = extra.get("uri", ""), extra.get("pin", False), extra.get("attach_timeout_s", 300.0)
    for name, value, kind in (("uri", uri, str), ("memory", memory, str), ("pin", pin, bool)):
        if not isinstance(value, kind):
            raise ValueError(f"model_loader_extra_config: {name} is {value!r}, which is no {kind.__name__}")  # noqa: TRY004  vLLM's
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
        raise ValueError(f"model_loader_extra_config: attach_timeout_s is {timeout_s!r}; give seconds")
    return LoaderSettings(uri, pin, float(timeout_s), concurrency, memory), others


def is_wrapped(path: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether a model's path is the folder that the wrapper has put into the command, and its buffer may be there."""
    env = os.environ if env is None else env
    folder = env.get(FOLDER, "")
    return bool(env.get(SOCKET) and folder) and os.path.realpath(path) == os.path.realpath(folder)
