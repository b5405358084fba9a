"""The file that says what to deploy, and what the command line says on top of it.

Values are read from YAML's nodes: they know their lines and how they were written, so that ``0777`` is not taken for 511.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING, Any, BinaryIO

import yaml

from glowplug.deploy.wish import options
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.deploy.wish import Kind, Option

_MOST_BYTES = 1 << 20
_STDIN = "<stdin>"
_HINT = "name a file with options, as YAML"
_STRING, _INTEGER, _BOOLEAN, _NULL = (f"tag:yaml.org,2002:{name}" for name in ("str", "int", "bool", "null"))
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)")
_SAID: Mapping[Kind, str] = {
    "text": "a text",
    "number": "a whole number",
    "switch": "true or false",
    "list": "a list of texts",
    "map": "a mapping of names to texts",
}


def read_options(name: str | None, given: Mapping[str, object], stdin: BinaryIO) -> dict[str, Any]:
    """Fields of a ``Wish`` from a file and from options; options win, and variables of both are joined, each by its name.

    Args:
        name: YAML or JSON; ``-`` is standard input, None no file.
        given: fields that the command line has set.
        stdin: for ``-``.

    Raises:
        UsageError: the file can't be read, is no YAML, or holds what is no option, or a value of another type.
    """
    values = _from_file(name, stdin) if name is not None else {}
    both = {**values, **given}
    if "env" in values and "env" in given:
        own: tuple[str, ...] = given["env"]  # type: ignore[assignment]  # words, as the command line has parsed them
        named = {word.partition("=")[0] for word in own}
        both["env"] = (*(word for word in values["env"] if word.partition("=")[0] not in named), *own)
    return both


def _from_file(name: str, stdin: BinaryIO) -> dict[str, Any]:
    source = _STDIN if name == "-" else name
    root = _root(_content(name, stdin), source)
    known = {option.name: option for option in options()}
    made: dict[str, Any] = {}
    for key, line, node in _entries(root, source) if root is not None else ():
        option = known.get(key)
        if option is None:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may have: {', '.join(known)}"
            raise UsageError(f"{source}:{line}: {key!r} is no option", object="--file", hint=hint)
        made[option.field] = _value(option, node, line, source)
    if made.get("config") and name != "-":
        made["config"] = os.path.join(os.path.dirname(name), made["config"])
    return made


def _content(name: str, stdin: BinaryIO) -> bytes:
    if not name:
        raise UsageError("--file is empty", object="--file", hint=_HINT)
    try:
        if name == "-":
            raw = stdin.read(_MOST_BYTES + 1)
        else:
            with open(name, "rb") as file:
                raw = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--file: {name}: {reason}", object="--file", hint=f"{_HINT}, or - for standard input") from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"--file: {name} is too large to be one", object="--file", hint=_HINT)
    return raw


def _root(raw: bytes, source: str) -> yaml.MappingNode | None:
    """The mapping of options; None where the file says nothing."""
    nodes = [node for node in _nodes(raw, source) if node.tag != _NULL]
    if not nodes:
        return None
    root = nodes[0]
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{source}: is no mapping of options", object="--file", hint="write option: value on each line")
    if {"apiVersion", "kind"} <= {key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)}:
        hint = "give deploy its own options (docs/deploy.md); to check a manifest: glowplug doctor FILE"
        raise UsageError(f"--file: {source} is a Kubernetes manifest", object="--file", hint=hint)
    if len(nodes) > 1:
        text = f"{source}:{nodes[1].start_mark.line + 1}: a second document"
        raise UsageError(text, object="--file", hint="write all options into one, without --- between them")
    return root


def _nodes(raw: bytes, source: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(raw, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        text = f"{source}{line}: no YAML: {error.problem}"
        raise UsageError(text, object="--file", hint="write option: value on each line") from None
    except yaml.YAMLError as error:  # characters that YAML may not hold
        raise UsageError(f"{source}: no YAML: {str(error).splitlines()[0]}", object="--file", hint="see docs/deploy.md") from None
    except RecursionError:
        raise UsageError(f"{source}: nested too deep", object="--file", hint="write option: value on each line") from None


def _entries(mapping: yaml.MappingNode, source: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """Key, line and value of each entry. A key may stand once; PyYAML itself takes the last one without a word."""
    lines: dict[str, int] = {}
    for key, node in mapping.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise UsageError(f"{source}:{line}: a key is no text", object="--file", hint="write name: value on each line")
        if key.value in lines:
            text = f"{source}:{line}: {key.value!r} stands in line {lines[key.value]} already"
            raise UsageError(text, object="--file", hint="keep the one that counts")
        lines[key.value] = line
        yield key.value, line, node


def _value(option: Option, node: yaml.Node, line: int, source: str) -> object:
    if option.kind == "list" and isinstance(node, yaml.SequenceNode):
        return tuple(_scalar("text", option.name, item, item.start_mark.line + 1, source) for item in node.value)
    if option.kind == "map" and isinstance(node, yaml.MappingNode):
        return tuple(
            f"{name}={_scalar('text', f'{option.name}: {name}', item, at, source)}" for name, at, item in _entries(node, source)
        )
    unit = " with its unit, as in 65GB" if option.metavar == "SIZE" else ""
    return _scalar(option.kind, option.name, node, line, source, unit)


def _scalar(kind: Kind, name: str, node: yaml.Node, line: int, source: str, unit: str = "") -> object:
    """The value as its option has it.

    Raises:
        UsageError: it is of another type.
    """
    if isinstance(node, yaml.ScalarNode):
        text: str = node.value
        if kind == "text" and node.tag == _STRING:
            return text
        if kind == "number" and node.tag == _INTEGER and _DECIMAL.fullmatch(text):
            return int(text)
        if kind == "switch" and node.tag == _BOOLEAN and text.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[text.lower()]
    said = f"{_SAID[kind]}{unit}"
    hint = f"write {said}; numbers, dates and yes/no that are meant as text need quotes"
    if kind == "number":
        hint = f"write {said} in decimal, without quotes and without a zero in front"
    raise UsageError(f"{source}:{line}: {name}: {_shown(node)} is not {said}", object="--file", hint=hint)


def _shown(node: yaml.Node) -> str:
    """A value as it was written."""
    if not isinstance(node, yaml.ScalarNode):
        return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
    return repr(node.value) if node.tag == _STRING else node.value or "nothing"
