"""Bars of a fixed number of columns, in block characters or in ASCII.

One column of block characters shows eighths, so a phase of a second is visible in a start of two minutes. A bar is never empty if
its span is not: the shortest is one thin stroke. Knows nothing of reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glowplug.timeline.phases import Span

_EIGHTHS = 8


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that bars and rules are drawn with.

    Attributes:
        full: a filled column.
        light: a column of what nobody accounts for, or of the start that is compared against.
        left: seven characters that fill one to seven eighths of a column from its left edge.
        right: three characters that fill about an eighth, a half, and all of a column from its right edge.
        rule: a horizontal line.
        axis: where time begins.
        plain: every other character must be ASCII.
    """

    full: str
    light: str
    left: str
    right: str
    rule: str
    axis: str
    plain: bool

    @property
    def everything(self) -> str:
        """All characters that may be drawn, to ask an encoding whether it has them."""
        return self.full + self.light + self.left + self.right + self.rule + self.axis

    def only(self, text: str) -> str:
        """The text, with characters that these glyphs can't show replaced by ``?``."""
        return text.encode("ascii", "replace").decode("ascii") if self.plain else text

    def bar(self, spans: Iterable[Span], total_s: float, columns: int, *, light: bool = False) -> str:
        """One line of ``columns`` characters at most, without trailing spaces, with every span at its place.

        Args:
            spans: start and end in seconds; what lies outside 0..total_s is cut off.
            total_s: what the whole line stands for; 0 or less gives an empty bar.
            columns: at least 1.
            light: draw filled columns only, in the light character.
        """
        if total_s <= 0:
            return ""
        cells = [" "] * columns
        for start, end in spans:
            if end <= start or end <= 0 or start >= total_s:
                continue
            first = min(max(0, round(max(0.0, start) / total_s * columns * _EIGHTHS)), columns * _EIGHTHS - 1)
            last = max(first + 1, round(min(end, total_s) / total_s * columns * _EIGHTHS))
            self._fill(cells, first, last, light=light)
        return "".join(cells).rstrip()

    def share(self, first: float, second: float, scale: float, columns: int) -> str:
        """Two lengths in one bar: the second is dark, and light is by how much the first is longer."""
        dark = self.bar([(0.0, second)], scale, columns)
        reach = round(min(first, scale) / scale * columns)
        return dark + self.light * max(0, reach - len(dark))

    def _fill(self, cells: list[str], first: int, last: int, *, light: bool) -> None:
        """Fill from the first eighth to before the last one. Columns that are drawn already are kept, unless this fills them."""
        for column in range(first // _EIGHTHS, (last - 1) // _EIGHTHS + 1):
            begin = max(first - column * _EIGHTHS, 0)
            end = min(last - column * _EIGHTHS, _EIGHTHS)
            filled = end - begin
            if light:
                if 2 * filled >= _EIGHTHS:
                    cells[column] = self.light
            elif filled == _EIGHTHS:
                cells[column] = self.full
            elif cells[column] == " ":
                # Block characters know seven widths from the left and only two from the right.
                from_right = begin > 0 and (end == _EIGHTHS or begin >= _EIGHTHS // 2)
                cells[column] = self.right[min(filled // 3, 2)] if from_right else self.left[filled - 1]


BLOCKS = Glyphs("█", "░", "▏▎▍▌▋▊▉", "▕▐█", "─", "│", plain=False)
ASCII = Glyphs("#", ".", "|||####", "||#", "-", "|", plain=True)
