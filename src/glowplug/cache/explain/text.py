"""Causes as a person reads them: short values, no control characters, and of two lists what only one of them has.

What is shown comes from a store that others write to, so no character of it may steer a terminal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glowplug.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glowplug.cache.envelope import Json
    from glowplug.cache.explain.causes import Cause

_NOTHING = "nothing"


def shortened(text: str, columns: int) -> str:
    """The text cut in the middle to so many characters, printable; names and versions often differ at their ends."""
    text = printable(text)
    if len(text) <= columns:
        return text
    head = (columns - 3) // 2
    return text[:head] + "..." + text[len(text) - (columns - 3 - head) :]


def values(cause: Cause, columns: int = 60) -> tuple[str, str]:
    """Both values of a cause, here and there, each in so many characters at most."""
    ours, theirs = (None if value is None else json.loads(value) for value in (cause.ours, cause.theirs))
    if isinstance(ours, list) and isinstance(theirs, list):
        left, right = (_only(one, other) for one, other in ((ours, theirs), (theirs, ours)))
        if left or right:
            return shortened(f"with {left}" if left else f"without {right}", columns), shortened(
                f"with {right}" if right else f"without {left}", columns
            )
    here, there = _shown(cause.ours, ours, columns), _shown(cause.theirs, theirs, columns)
    if here == there:  # the number 1 and the text "1", or what differs in the middle that was cut
        return shortened(cause.ours or _NOTHING, columns), shortened(cause.theirs or _NOTHING, columns)
    return here, there


def one_line(cause: Cause, columns: int = 60) -> str:
    """``environment.VLLM_IMAGE_TAG (here v2, there v1)``."""
    here, there = values(cause, columns)
    return f"{shortened(cause.path, 2 * columns)} (here {here}, there {there})"


def two_lines(causes: Sequence[Cause]) -> tuple[str, str]:
    """For a log: what the nearest cache differs in, and what to do. Takes at least one cause."""
    first, *rest = causes
    more = f" and {len(rest)} more" if rest else ""
    return f"nearest cache in the store differs in {one_line(first, 48)}{more}", f"{first.what}, {first.in_words}: {first.fix}"


def _shown(document: str | None, value: Json, columns: int) -> str:
    if document is None or value is None:
        return _NOTHING
    text = value if isinstance(value, str) and value and value == value.strip() else document
    return shortened(text, columns)


def _only(these: list[Json], those: list[Json]) -> str:
    others = {json.dumps(item) for item in those}
    return ", ".join(str(item) for item in these if json.dumps(item) not in others)
