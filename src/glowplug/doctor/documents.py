"""YAML and JSON as plain values that remember their lines, from text that nobody has checked.

Built from parser events with a stack of its own: neither deep nesting nor an alias inside itself can exhaust anything, and aliases
that multiply (the "billion laughs") are counted before anybody walks them. Tags are not constructed: what is no mapping, sequence,
number, truth value or null is text. libyaml's parser is used where PyYAML has it, which is ten times faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_DEPTH = 100
MOST_VALUES = 500_000
"""Of one document, aliases spelt out. The largest that are seen, definitions of custom resources, have some 50,000."""

Value: TypeAlias = "Map | Seq | str | int | float | bool | None"
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOOLEANS = {
    word: truth
    for words, truth in (("y yes true on", True), ("n no false off", False))
    for plain in words.split()
    if len(plain) > 1
    for word in (plain, plain.capitalize(), plain.upper())
}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OCTAL = re.compile(r"[-+]?0o?[0-7]+")
_HEX = re.compile(r"[-+]?0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?)")
_LONGEST_NUMBER = 40
_STRING = "tag:yaml.org,2002:str"


class Map(dict[str, Any]):
    """A mapping: its line, and that of each key; keys that stood there before with the line of theirs, and how many are below."""

    __slots__ = ("inherited", "line", "lines", "lost", "repeats", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.size = 1
        self.repeats = 0
        self.lost: tuple[tuple[str, int], ...] = ()
        self.inherited: frozenset[str] = frozenset()


class Seq(list[Any]):
    """A sequence: its line, and that of each item; how many keys below stand twice."""

    __slots__ = ("line", "lines", "repeats", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        self.size = 1
        self.repeats = 0


@dataclass(frozen=True, slots=True)
class Unreadable(Exception):
    """A document that can't be read.

    Attributes:
        line: from 1; 0 if unknown.
        problem: one line.
        hint: what to do.
    """

    line: int
    problem: str
    hint: str = "correct the file"


def documents(text: str) -> Iterator[Value]:
    """Each document of a stream, in order; empty ones are left out.

    Args:
        text: YAML or JSON.

    Raises:
        Unreadable: from here on the stream is no YAML, too deep, or too large; what came before has been given.
    """
    try:
        loader = _Loader(text)
        yield from _documents(loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        lines = text.split("\n")
        line = min(mark.line + 1, len(lines)) if mark else 0  # an end that comes too early is marked behind it
        indent = lines[line - 1][: -len(lines[line - 1].lstrip())] if line else ""
        hint = "indent by spaces: YAML takes no tabs" if "\t" in indent else "correct the file"
        raise Unreadable(line, _in_words(error), hint) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(line, f"character {error.character!r} is not allowed in YAML: {error.reason}") from None
    except yaml.YAMLError as error:
        raise Unreadable(0, " ".join(str(error).split())) from None


def _in_words(error: yaml.MarkedYAMLError) -> str:
    told = [" ".join(part.split()) for part in (error.problem, error.context) if part]
    return ", ".join(told) or "not YAML"


def _documents(loader: yaml.SafeLoader) -> Iterator[Value]:
    builder = _Builder()
    while loader.check_event():
        event = loader.get_event()  # type: ignore[no-untyped-call]
        kind = type(event)
        if kind is yaml.ScalarEvent:
            builder.add(_scalar(event), event.anchor, event.start_mark.line + 1)
        elif kind is yaml.MappingStartEvent:
            builder.open(Map(event.start_mark.line + 1), event.anchor)
        elif kind is yaml.SequenceStartEvent:
            builder.open(Seq(event.start_mark.line + 1), event.anchor)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            builder.close()
        elif kind is yaml.AliasEvent:
            builder.alias(event.anchor, event.start_mark.line + 1)
        elif kind is yaml.DocumentStartEvent:
            builder = _Builder()
        elif kind is yaml.DocumentEndEvent and builder.root is not None:
            yield builder.root


_NO_KEY = object()


class _Builder:
    """One document as it grows."""

    def __init__(self) -> None:
        self.root: Value = None
        self._anchors: dict[str, Value] = {}
        self._open: list[tuple[Map | Seq, Any, int, str | None]] = []  # container, pending key, its line, anchor

    def open(self, container: Map | Seq, anchor: str | None) -> None:
        if len(self._open) >= MOST_DEPTH:
            raise Unreadable(container.line, f"nested more than {MOST_DEPTH} deep")
        self._open.append((container, _NO_KEY, 0, anchor))

    def close(self) -> None:
        container, _, _, anchor = self._open.pop()
        self.add(container, anchor, container.line)

    def alias(self, name: str, line: int) -> None:
        if name not in self._anchors:
            raise Unreadable(line, f"*{name} refers to no anchor before it, or to itself")
        self.add(self._anchors[name], None, line)

    def add(self, value: Value, anchor: str | None, line: int) -> None:
        """Put a finished value where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._open:
            self.root = value
            return
        container, key, key_line, own_anchor = self._open[-1]
        if isinstance(container, Seq):
            container.append(value)
            container.lines.append(line)
        elif key is _NO_KEY:
            self._open[-1] = (container, _key(value, line), line, own_anchor)
            return
        else:
            self._open[-1] = (container, _NO_KEY, 0, own_anchor)
            _put(container, key, value, key_line)
        if isinstance(value, (Map, Seq)):
            container.size += value.size
            container.repeats += value.repeats
        else:
            container.size += 1
        if container.size > MOST_VALUES:
            raise Unreadable(
                line, f"more than {MOST_VALUES:,} values, aliases spelt out", "split the file, and take the aliases away"
            )


def _key(value: Value, line: int) -> str:
    if isinstance(value, (Map, Seq)):
        raise Unreadable(line, "a key is no text", 'write keys as text; a value in braces needs quotes: "{...}"')
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _put(mapping: Map, key: str, value: Value, line: int) -> None:
    if key == "<<" and isinstance(value, (Map, Seq)):
        for merged in value if isinstance(value, Seq) else (value,):
            for name, inherited in merged.items() if isinstance(merged, Map) else ():
                if name not in mapping:
                    mapping[name] = inherited
                    mapping.lines[name] = line
                    mapping.inherited |= {name}
        return
    if key in mapping and key not in mapping.inherited:
        mapping.lost += ((key, mapping.lines[key]),)
        mapping.repeats += 1
    mapping[key] = value
    mapping.lines[key] = line


def _scalar(event: yaml.ScalarEvent) -> Value:  # noqa: PLR0911  one return a type
    text: str = event.value
    if event.tag == _STRING or (event.tag is None and not event.implicit[0]):
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in "0123456789-+." or len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text.replace("o", ""), 8)
    if _HEX.fullmatch(text):
        return int(text, 16)
    return float(text) if _FLOAT.fullmatch(text) else text
