"""The command that is spawned in place of the user's: its model is a folder that stands for the checkpoint, where one is streamed.

``as_run_starts_it`` tells, without a start, what ``glowplug run`` would spawn. The cache's key is made of that command, so whoever
asks for the key of a command has to ask in the same way.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import glowplug
from glowplug.engines.base import Handover
from glowplug.engines.registry import weights_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Started(NamedTuple):
    """The command to spawn, and its environment; the user's own where nothing is streamed."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    key_env: Mapping[str, str]
    """What of it the cache's key is made from: without the path to our loader, which differs from node to node."""


def rewritten(
    rewrite: Callable[[Handover], tuple[tuple[str, ...], dict[str, str]]], handover: Handover, env: Mapping[str, str]
) -> Started:
    """The command that takes its weights from the buffer.

    Args:
        rewrite: the request's.
        handover: what the engine's loader must find.
        env: the user's own.
    """
    argv, variables = rewrite(handover)
    kept = {name: value for name, value in variables.items() if name.startswith("VLLM_")}
    return Started(argv, {**env, **variables}, {**env, **kept})


def as_run_starts_it(argv: Sequence[str], env: Mapping[str, str], *, engine: str | None) -> Started:
    """What ``glowplug run`` would spawn. Reads the headers and the small files of a remote checkpoint; no weight.

    Args:
        argv: the user's command.
        env: its environment.
        engine: an adapter's name; None to recognise it.

    Raises:
        UsageError: a URL that can't be one.
        RemoteError: the checkpoint can't be read.
        IntegrityError: it is none.
        LocalError: the folder that stands for it can't be written.
    """
    request = weights_request(tuple(argv), env, os.getcwd(), engine=engine)
    if request is None or not request.is_remote or request.rewrite is None or request.obstacle():
        return Started(tuple(argv), env, env)
    from glowplug.weights.checkpoint.metadata_folder import make_metadata_folder  # noqa: PLC0415  only where it is streamed
    from glowplug.weights.checkpoint.opening import open_checkpoint  # noqa: PLC0415  the same
    from glowplug.weights.sources.open import open_source  # noqa: PLC0415  the same

    source = open_source(request.uri, env=env)
    try:
        checkpoint = open_checkpoint(source)
        folder = make_metadata_folder(source, checkpoint)
    finally:
        source.close()
    return rewritten(request.rewrite, Handover(str(folder.path), checkpoint.uri, "", own_command()), env)


def own_command() -> str:
    """How to start this Glowplug again, as a shell line: the launcher of an injected folder, or this Python."""
    payload = Path(glowplug.__file__).absolute().parents[2]
    launcher = payload.parent / "bin" / "glowplug"
    words = [str(launcher)] if (payload / "glowplug.json").is_file() and launcher.is_file() else [sys.executable, "-m", "glowplug"]
    return shlex.join(words)
