"""Finds the engine that a command starts. The first adapter that knows the command describes it; the generic one knows all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.engines.generic.adapter import GenericAdapter
from glowplug.engines.vllm.adapter import VllmAdapter
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.engines.base import Adapter, Launch, WeightsRequest

ENGINES: Mapping[str, type[Adapter]] = {"vllm": VllmAdapter, "generic": GenericAdapter}
"""Adapters by the name that ``--engine`` takes, in the order they are asked."""


def recognise(argv: Sequence[str], env: Mapping[str, str], cwd: str, *, engine: str | None = None) -> Launch:
    """Describe a command. Starts nothing but one short question to the command's own Python (at most 5 s, usually 20 ms).

    Args:
        argv: the command after ``--``, at least one word.
        env: the environment the engine will get, before the cache variables are set.
        cwd: the folder it will start in.
        engine: ask this adapter alone.

    Raises:
        UsageError: no such engine; the command isn't this engine's; or the engine could not start with it, such as a config file
            that does not exist.
    """
    if engine is not None and engine not in ENGINES:
        raise UsageError(f"--engine {engine}: no such engine", object=engine, hint=f"choose one of {', '.join(ENGINES)}")
    for name, adapter in ENGINES.items():
        if engine in (None, name):
            launch = adapter().launch(argv, env, cwd)
            if launch is not None:
                return launch
    raise UsageError(
        f"--engine {engine}: `{argv[0]}` does not start it",
        object=str(engine),
        hint="leave --engine out, or write --engine generic",
    )


def weights_request(argv: Sequence[str], env: Mapping[str, str], cwd: str, *, engine: str | None = None) -> WeightsRequest | None:
    """The checkpoint that a command will load; None where nobody knows. Takes what ``recognise`` takes, and starts nothing."""
    for name, adapter in ENGINES.items():
        if engine in (None, name):
            request = adapter().weights_request(argv, env, cwd)
            if request is not None:
                return request
    return None
