"""What every step of one start shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.errors import GlowplugError
from glowplug.run.reporting import Steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.run.clock import Clock
    from glowplug.run.console import Console
    from glowplug.run.options import RunOptions
    from glowplug.run.weights import Weights
    from glowplug.timeline.report import Event


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a command.

    Attributes:
        options: how it is to be supervised.
        env: the environment the user gave it.
        clock: began with the wrapper.
        console: where the user is told.
        weights: the checkpoint, on its way.
        steps: the wrapper's own phases so far.
        events: what somebody should look at, so far.
    """

    options: RunOptions
    env: Mapping[str, str]
    clock: Clock
    console: Console
    weights: Weights
    steps: Steps = field(default_factory=Steps)
    events: list[Event] = field(default_factory=list)


def describe_error(error: Exception) -> str:
    """One line for what a fail-open boundary has caught."""
    return error.line() if isinstance(error, GlowplugError) else f"internal error, {type(error).__name__}: {error}"
