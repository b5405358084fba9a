"""What a page of Markdown holds: blocks of code, headings as anchors, links, code in sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FENCE = re.compile(r"( *)(`{3,})(\w*)\s*$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """Lines of code. ``language`` is what the fence names, and empty for an indented block."""

    page: Path
    line: int
    language: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    path: Path
    blocks: tuple[Block, ...]
    prose: str

    @property
    def links(self) -> list[str]:
        """Targets, but for those that another server has to answer for."""
        found = _LINK.findall(_SPAN.sub("", self.prose))
        return [target for target in found if not re.match(r"[a-z]+:", target)]

    @property
    def spans(self) -> list[str]:
        return _SPAN.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What GitHub makes of the headings."""
        found: set[str] = set()
        for heading in re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE):
            text = re.sub(r"\\(.)", r"\1", _LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            number = next(number for number in range(99) if (f"{slug}-{number}" if number else slug) not in found)
            found.add(f"{slug}-{number}" if number else slug)
        return found


def read_page(path: Path) -> Page:
    blocks: list[Block] = []
    prose: list[str] = []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence:
            indent = len(fence[1])
            inside = tuple(text[indent:] for text in _until(lines, fence[2]))
            blocks.append(Block(path, number, fence[3], inside))
        elif line.startswith("    ") and not (prose and prose[-1].lstrip().startswith(("-", "|", "1."))):
            blocks.append(Block(path, number, "", (line[4:],)))
        else:
            prose.append(line)
    return Page(path, tuple(_joined(blocks)), "\n".join(prose))


def _until(lines: Iterator[tuple[int, str]], end: str) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == end:
            return
        yield line


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """Indented lines that follow each other are one block."""
    last: Block | None = None
    for block in blocks:
        if last and not last.language and not block.language and block.line == last.line + len(last.lines):
            last = Block(last.page, last.line, "", (*last.lines, *block.lines))
            continue
        if last:
            yield last
        last = block
    if last:
        yield last
