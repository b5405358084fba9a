"""How commands print: columns for a person, one JSON document for a program, a bar where a person waits."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

from glowplug.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from glowplug.cache.envelope import Json


def print_json(document: Json) -> None:
    """One document, indented, on standard output. In ASCII where its encoding lacks a character."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=2)
    print(text)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their content, control characters as escapes. The last one is not padded."""
    lines = [[printable(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in lines) for column in range(len(header) - 1)]
    for row in lines:
        print("  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[-1]]).rstrip())


@contextlib.contextmanager
def progress_bar(label: str, *, total_bytes: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, on a terminal only. The function that it gives takes bytes done since the last call."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  120 ms, for a terminal only
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415  the same

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda done: progress.advance(task, done)
