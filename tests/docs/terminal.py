"""A terminal for the pages' examples: pipelines of ``glowplug``, which is called in this process, and of small programs.

Where a page shows what a command prints, a line ``...`` stands for any lines, and ``...`` within a line for anything.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from glowplug.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.docs.pages import Block

PROMPT = "$ "


class Example(NamedTuple):
    """A command line and what it is shown to print."""

    command: str
    shown: tuple[str, ...]


def examples(block: Block) -> Iterator[Example]:
    """Those of a block: each line that begins with a prompt, and what follows up to the next."""
    lines = list(block.lines)
    assert lines[0].startswith(PROMPT), f"{block.page.name}:{block.line}: no command"
    while lines:
        command = lines.pop(0).removeprefix(PROMPT)
        while command.endswith("\\"):
            command = command[:-1].rstrip() + " " + lines.pop(0).strip()
        shown = []
        while lines and not lines[0].startswith(PROMPT):
            shown.append(lines.pop(0))
        yield Example(command, tuple(shown))


def pipeline(command: str) -> list[list[str]]:
    """The words of each program of a line."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What it prints: the last program's output, after what all of them have said on standard error."""
    fed, said = b"", ""
    for words in pipeline(command):
        if words[0] == "glowplug":
            fed, errors = _glowplug(words, fed, monkeypatch)
        else:
            ended = subprocess.run(words, input=fed, cwd=folder, capture_output=True, check=False)
            fed, errors = ended.stdout, ended.stderr.decode()
        said += errors
    return (said + fed.decode()).splitlines()


def _glowplug(words: Sequence[str], fed: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, str]:
    out, err = io.BytesIO(), io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", list(words))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(fed), encoding="utf-8"))
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit):  # with what code is not shown, and what it says is
            main()
        return out.getvalue(), err.getvalue()


def missing(shown: Sequence[str], told: Sequence[str]) -> str | None:
    """The first line that is shown and not told where it is shown; None if all is as shown."""
    at, anywhere = 0, False
    for index, line in enumerate(shown):
        if line.strip() == "...":
            anywhere = True
            continue
        if anywhere:
            piece = _piece(shown[index:])
            at = next((place for place in range(at, len(told)) if _fits(piece, told[place:])), len(told))
            anywhere = False
        if at >= len(told) or not _same(line, told[at]):
            return line
        at += 1
    return None if anywhere or at == len(told) else f"(then:) {told[at]}"


def _piece(shown: Sequence[str]) -> list[str]:
    """The lines up to the next that are left out."""
    end = next((index for index, line in enumerate(shown) if line.strip() == "..."), len(shown))
    return list(shown[:end])


def _fits(piece: Sequence[str], told: Sequence[str]) -> bool:
    return len(told) >= len(piece) and all(map(_same, piece, told))


def _same(shown: str, told: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in shown.rstrip().split("..."))
    return re.fullmatch(pattern, told.rstrip()) is not None
