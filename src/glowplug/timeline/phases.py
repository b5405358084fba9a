"""A start is a row of phases on one clock: seconds after the wrapper's own start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """A named stretch of a start.

    Attributes:
        name: ``envelope``, ``restore``, ``spawn``, ``imports`` (imports and engine start), ``weights``, ``compile``, ``profiling``,
            ``graph capture``, ``ready`` (engine up to the first good probe), or ``run`` (a generic command).
        start_s: seconds after the wrapper's own start.
        seconds: its length, >= 0.
    """

    name: str
    start_s: float
    seconds: float
