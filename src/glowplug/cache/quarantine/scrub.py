"""Text for a document that leaves the pod: an engine's last lines without secrets and without control characters.

More is masked here than a capture refuses: in a log line a masked word that was no secret costs nobody anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.errors import SecretFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glowplug.cache.secrets import SecretScan

MAX_LINES = 20
MAX_LINE_CHARACTERS = 400
_MASK = "***"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours, and what moves the cursor
_NAMES = r"(?:api[-_]?key|access[-_]?key|secret|token|passw(?:or)?d|credential|authorization|signature)"
# `api_key=x`, `'api_key': ['x']`, `X-Amz-Signature=x`; not `max_tokens=8192`.
_ASSIGNED = re.compile(rf"(?i)([\w-]*{_NAMES}[\w-]*[\"']?\s*[:=]\s*[\[(]?\s*[\"']?)(?![\d.]+\b)[^\s\"',;&\])}}]{{3,}}")
_OPTION = re.compile(rf"(?i)(--[\w-]*{_NAMES}[\w-]*\s+[\"']?)(?!-)[^\s\"',;]{{3,}}")
_SCHEME = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}")
_USER = re.compile(r"(://)[^/\s@]+@")


def plain(text: str, *, limit: int = MAX_LINE_CHARACTERS) -> str:
    """One line that can be printed anywhere: no colours, no control characters, no direction marks, and not too long."""
    text = _STYLE.sub("", text[: 4 * limit])
    return "".join(character if character.isprintable() else " " for character in text)[:limit].strip()


def scrub(lines: Iterable[str], scan: SecretScan) -> tuple[str, ...]:
    """The last lines, without what a pod must keep to itself.

    Args:
        lines: as the engine wrote them, in order.
        scan: knows the values of this environment's secret variables.
    """
    scrubbed = tuple(_scrubbed(list(lines)[-MAX_LINES:], scan))
    try:
        scan.check("all lines", "".join(scrubbed).encode(errors="replace"))  # a value that is broken over two lines
    except SecretFound as error:
        return (f"(all lines are withheld: {error.message})",)
    return scrubbed


def _scrubbed(lines: list[str], scan: SecretScan) -> Iterator[str]:
    in_key = False
    for number, line in enumerate(lines):
        in_key = (in_key or "PRIVATE KEY-----" in line) and "-----END" not in line
        try:
            scan.check(f"line {number}", line.encode(errors="replace"))
        except SecretFound as error:
            yield f"(withheld: {error.message})"
            continue
        if in_key or "-----END" in line:
            yield "(withheld: part of a key)"
            continue
        masked = _ASSIGNED.sub(rf"\1{_MASK}", _USER.sub(rf"\1{_MASK}@", _SCHEME.sub(rf"\1{_MASK}", line)))
        yield plain(_OPTION.sub(rf"\1{_MASK}", masked))
