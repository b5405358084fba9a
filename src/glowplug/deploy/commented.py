"""Keys and items that carry a comment, so that builders stay plain dicts and lists and the emitter can still say why.

A commented key is a string: it compares, sorts and hashes as one, and whoever reads a manifest in Python sees nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

Node: TypeAlias = "str | int | float | bool | Mapping[str, Node] | Sequence[Node] | None"
"""What a manifest is made of."""
Object: TypeAlias = "dict[str, Node]"
"""One Kubernetes object."""


class Commented(str):
    """A string with a comment, which is written on lines of its own before it.

    Attributes:
        comment: without ``#``; may have several lines.
    """

    __slots__ = ("comment",)
    comment: str

    def __new__(cls, text: str, comment: str) -> Self:
        """A string that equals ``text``."""
        made = super().__new__(cls, text)
        made.comment = comment
        return made


def note(text: str, *lines: str) -> Commented:
    """A key, or an item of a list, with lines that say why it is so."""
    return Commented(text, "\n".join(lines))


def plain(node: Node) -> Node:
    """The same without comments, as a parser would give it back."""
    if isinstance(node, str):
        return str(node)
    if isinstance(node, dict):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(item) for item in node]
    return node
