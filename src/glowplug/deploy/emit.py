"""Manifests as YAML, in the order in which they were built, with the comments of their keys. PyYAML's own emitter does the writing.

The comment of a key is written before the key, at its indentation. That of an item's first key is written before the item's dash,
for between the dash and the key there is no line.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import yaml

from glowplug.deploy.commented import Commented

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glowplug.deploy.commented import Node

_WIDTH = 110
_NEVER_FOLDED = 1 << 20
"""A folded string is harder to read and to compare than a long line."""


class _Dumper(yaml.SafeDumper):
    """PyYAML's emitter, which stops for a comment before keys and items."""

    def ignore_aliases(self, _data: object) -> bool:
        return True  # an anchor helps nobody who reads a manifest

    def expect_block_mapping_key(self, first: bool = False) -> None:
        if isinstance(self.event, yaml.ScalarEvent):
            self._write_comment(self.event)
        super().expect_block_mapping_key(first)

    def expect_block_sequence_item(self, first: bool = False) -> None:
        event = self.event
        if isinstance(event, yaml.MappingStartEvent) and self.events:
            event = self.events[0]
        if isinstance(event, yaml.ScalarEvent):
            self._write_comment(event)
        super().expect_block_sequence_item(first)

    def _write_comment(self, event: yaml.ScalarEvent) -> None:
        if not isinstance(event.value, Commented):
            return
        comment, event.value = event.value.comment, str(event.value)
        for line in comment.splitlines():
            for part in textwrap.wrap(line, _WIDTH - (self.indent or 0)):
                self.write_indent()
                text = f"# {part}"
                self.column += len(text)
                self.whitespace = self.indention = False
                self.stream.write(text)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Commented, _text)


def to_yaml(node: Node) -> str:
    """One document, without its ``---``."""
    return yaml.dump(node, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_NEVER_FOLDED)


def to_stream(documents: Iterable[tuple[str, Node]]) -> str:
    """Several documents, each with a comment at its head, which may be empty."""
    return "".join("---\n" + heading(head) + to_yaml(node) for head, node in documents)


def heading(text: str) -> str:
    """Lines of comment that begin a document; a line that is long is wrapped, and one that is indented is left alone."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if line.startswith(" ") else textwrap.wrap(line, _WIDTH) or [""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
