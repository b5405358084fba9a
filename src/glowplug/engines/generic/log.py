"""The log of a command that nothing is known about: one phase, no evidence."""

from __future__ import annotations

from glowplug.timeline.outcome import Evidence
from glowplug.timeline.phases import Phase


class GenericLog:
    """Reads nothing. Implements ``EngineLog``."""

    def feed(self, line: str, at_s: float) -> None:
        """Look away."""

    def phases(self, spawned_s: float, ready_s: float) -> list[Phase]:
        """One phase, ``run``, from the spawn to the end."""
        return [Phase("run", spawned_s, max(0.0, ready_s - spawned_s))]

    def evidence(self) -> Evidence:
        """None: every count is zero."""
        return Evidence()
