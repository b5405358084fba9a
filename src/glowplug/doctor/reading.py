"""Files, folders and standard input as objects: what can't be read is said with file and line, and the rest is read anyway."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.doctor.documents import Map, Unreadable, documents
from glowplug.doctor.objects import Object, items, line_of, object_of, text
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

MOST_BYTES = 32 * 2**20
"""Of one file. The largest sets of definitions that are published have some 5 MiB."""
STDIN = "<stdin>"
_NO_MAPPING = "no mapping"
_NO_KIND = "no kind"
_NO_VERSION = " without an apiVersion"
_SUFFIXES = (".yaml", ".yml", ".json")
_TEMPLATE = re.compile(r"^[^#\n]*\{\{", re.MULTILINE)
_UNREADABLE = "check its permissions, and what kind of file it is"
_RENDER = "render it first: helm template NAME CHART | glowplug doctor -"


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file, or the rest of one, that was not checked.

    Attributes:
        file: as the user named it.
        line: from 1; 0 if unknown.
        problem: one line.
        hint: what to do.
    """

    file: str
    line: int
    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A document that no rule knows: its file, line and kind, or what it is instead."""

    file: str
    line: int
    kind: str


@dataclass(slots=True)
class Read:
    """What was found in all files."""

    objects: list[Object] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)


def read(names: Iterable[str], stdin: BinaryIO, *, recursive: bool = False) -> Read:
    """All objects of files and folders.

    Args:
        names: paths; ``-`` is standard input. In a folder, ``*.yaml``, ``*.yml`` and ``*.json`` are read.
        stdin: for ``-``.
        recursive: also the folders in a folder.

    Raises:
        UsageError: no such file or folder, or no Kubernetes object in all of them.
    """
    found = Read()
    files = [file for name in names for file in _files(name, recursive=recursive)]
    for file in dict.fromkeys(files):
        try:
            for body in _documents_of(file, stdin):
                _add(found, body, file)
        except Unreadable as error:
            found.bad.append(BadFile(file, error.line, error.problem, error.hint))
    if not found.bad and not found.objects:
        _require_objects(found, list(dict.fromkeys(files)))
    return found


def _require_objects(found: Read, files: list[str]) -> None:
    """A check of nothing is refused, or a wrong path in a pipeline would pass for ever."""
    if any(each.kind not in (_NO_MAPPING, _NO_KIND) and not each.kind.endswith(_NO_VERSION) for each in found.passed_over):
        return
    what = "standard input has" if files == [STDIN] else f"{files[0]} has" if len(files) == 1 else "the files have"
    lacks = "Kubernetes object: nothing in it has apiVersion and kind" if found.passed_over else "document"
    hint = "look whether the command before the pipe has failed" if files == [STDIN] else "give files with Kubernetes objects"
    if found.passed_over:
        hint = f"give manifests; of a Helm chart, {_RENDER}"
    raise UsageError(f"there is nothing to check: {what} no {lacks}", object=what.rpartition(" ")[0], hint=hint)


def _files(name: str, *, recursive: bool) -> list[str]:
    if name == "-":
        return [STDIN]
    if not os.path.isdir(name):
        if not os.path.exists(name):
            raise UsageError(f"{name}: no such file", object=name, hint="give files or folders, or - for standard input")
        return [name]
    try:
        inside = list(_inside(name, recursive=recursive))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}", object=name, hint=_UNREADABLE) from None
    files = sorted(each for each in inside if each.endswith(_SUFFIXES))
    if not files:
        hint = "name files, or a folder with *.yaml, *.yml or *.json" + ("" if recursive else "; -R looks into folders below")
        raise UsageError(f"{name}: the folder has no manifest", object=name, hint=hint)
    return files


def _inside(folder: str, *, recursive: bool) -> Iterator[str]:
    if not recursive:
        yield from (entry.path for entry in os.scandir(folder) if entry.is_file())
        return

    def fail(error: OSError) -> None:
        raise error

    for below, _, names in os.walk(folder, onerror=fail):
        yield from (os.path.join(below, each) for each in names)


def _documents_of(file: str, stdin: BinaryIO) -> Iterator[object]:
    text_ = _text_of(file, stdin)
    try:
        yield from documents(text_)
    except Unreadable as error:
        template = _TEMPLATE.search(text_)
        if template is not None:
            line = text_.count("\n", 0, template.end()) + 1
            raise Unreadable(line, "this is the source of a Helm chart, not a manifest", _RENDER) from None
        raise error from None


def _text_of(file: str, stdin: BinaryIO) -> str:
    try:
        if file == STDIN:
            content = stdin.read(MOST_BYTES + 1)
        else:
            with open(file, "rb") as source:
                content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(0, error.strerror or str(error), _UNREADABLE) from None
    if len(content) > MOST_BYTES:
        raise Unreadable(0, f"more than {MOST_BYTES >> 20} MiB", "give the manifests alone, or split the file")
    try:
        text_ = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        if b"\0" in content:
            raise Unreadable(line, "a binary file", "give YAML or JSON files") from None
        raise Unreadable(line, f"byte 0x{content[error.start]:02x} is not UTF-8", "save the file as UTF-8") from None
    if text_[:1] in ("{", "[") and "\t" in text_:
        text_ = text_.replace("\t", " ")  # JSON may be indented so, YAML may not; in its strings tabs are written \t
    return text_


def _add(found: Read, body: object, file: str) -> None:
    if not isinstance(body, Map):
        found.passed_over.append(PassedOver(file, getattr(body, "line", 1), _NO_MAPPING))
        return
    kind = text(body, "kind")
    if kind == "List" or (kind.endswith("List") and "items" in body):
        for item in items(body, "items"):
            _add(found, item, file)
        return
    if not kind:
        found.passed_over.append(PassedOver(file, body.line, _NO_KIND))
        return
    if not text(body, "apiVersion"):
        found.passed_over.append(PassedOver(file, body.line, f"{kind}{_NO_VERSION}"))
        return
    each = object_of(body, file)
    if "{{" in f"{kind}{each.name}{each.namespace}":
        raise Unreadable(line_of(body, ("metadata", "name")), "this is the source of a Helm chart, not a manifest", _RENDER)
    if each.kind:
        found.objects.append(each)
    else:
        found.passed_over.append(PassedOver(file, body.line, f"{text(body, 'apiVersion')} {kind}"))
