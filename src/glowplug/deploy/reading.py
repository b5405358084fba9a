"""The file that says what to deploy, and what the command line says on top of it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import yaml

from glowplug.deploy.wish import Wish, make_wish
from glowplug.doctor.documents import Map, Unreadable, documents
from glowplug.doctor.objects import at
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_BYTES = 1 << 20


def read_wish(path: Path | None, given: Mapping[str, object]) -> Wish:
    """A wish from a file and from options; options win, and variables of both are joined, each by its name.

    Args:
        path: YAML or JSON; None for none.
        given: fields of a ``Wish`` that the command line has set.

    Raises:
        UsageError: the file can't be read, is no YAML, or holds what is no option.
    """
    values: dict[str, Any] = _from_file(path) if path is not None else {}
    both = {**values, **given}
    if "env" in values and "env" in given:
        own: tuple[str, ...] = given["env"]  # type: ignore[assignment]  # words, as the command line has parsed them
        named = {word.partition("=")[0] for word in own}
        both["env"] = (*(word for word in values["env"] if word.partition("=")[0] not in named), *own)
    return dataclasses.replace(Wish(), **both)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--file: {path}: {error.strerror}", object="--file", hint="name a file with options, as YAML") from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"--file: {path} is too large to be one", object="--file", hint="name a file with options, as YAML")
    try:
        document = yaml.safe_load(raw)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(
            f"{path}{line}: no YAML: {error.problem}", object="--file", hint="write option: value on each line"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML may not hold, dates that are none
        raise UsageError(f"{path}: no YAML: {str(error).splitlines()[0]}", object="--file", hint="see docs/deploy.md") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UsageError(f"{path}: is no mapping of options", object="--file", hint="write option: value on each line")
    _refuse_repeats(raw, path)
    return make_wish(document, source=str(path))


def _refuse_repeats(raw: bytes, path: Path) -> None:
    """A key that stands twice: PyYAML takes the last one without a word."""
    with contextlib.suppress(Unreadable):
        for found in documents(raw.decode("utf-8-sig", "replace")):
            for mapping in (found, at(found, "env")):
                if isinstance(mapping, Map) and mapping.lost:
                    key, line = mapping.lost[0]
                    text = f"{path}:{mapping.lines[key]}: {key!r} stands in line {line} already"
                    raise UsageError(text, object="--file", hint="keep the one that counts")
