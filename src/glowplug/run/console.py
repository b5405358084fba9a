"""What the wrapper itself says: single lines on standard error, each beginning with ``glowplug:``.

The engine's output passes by untouched, so a line of ours must be recognisable, rare, and whole.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from glowplug.printable import one_line
from glowplug.run.pump import write_all

_WIDTH = 80
_WIDEST = 120  # bars that are longer say no more


@dataclass(frozen=True, slots=True)
class Console:
    """Writes to one descriptor, a whole line at a time. A terminal or pipe that is gone is nobody's problem.

    Attributes:
        descriptor: where the lines go.
        quiet: only warnings.
    """

    descriptor: int
    quiet: bool = False

    def note(self, text: str) -> None:
        """A line that is good to know."""
        if not self.quiet:
            self._line(text)

    def warn(self, text: str) -> None:
        """A line that somebody should act on."""
        self._line(text)

    def block(self, text: str) -> None:
        """Several lines that belong together, such as a table, as they are."""
        if not self.quiet:
            self._write(text.rstrip("\n") + "\n")

    def _line(self, text: str) -> None:
        self._write(f"glowplug: {one_line(text)}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            write_all(self.descriptor, text.encode(errors="replace"))


def terminal_width(descriptor: int) -> int:
    """Columns to print for: the terminal's, within 60 and 120, or 80 where there is none."""
    try:
        return min(max(os.get_terminal_size(descriptor).columns or _WIDTH, 60), _WIDEST)  # some terminals say 0
    except OSError:
        return _WIDTH
