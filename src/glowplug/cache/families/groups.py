"""The completeness rules that several writers share: which files only work together, and what is missing.

They read at most small text files of the writers, and raise nothing for one that has vanished: its group is then incomplete.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from glowplug.cache.families.base import Group

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from glowplug.cache.families.base import Incomplete, Kept

_GROUP = "__grp__"
# What Triton puts into a kernel's folder one by one, before the group that names them all.
_STAGE = re.compile(r"\.(source|ttir|ttgir|ttsharedir|llir|ptx|cubin|amdgcn|hsaco|spv|asm)$")
_KERNEL = re.compile(r"(^|/)[A-Z2-7]{52}$")  # a sha256 in base 32
_MAX_NOTES_BYTES = 16 * 1024 * 1024
_DEFAULT = re.compile(r"^default (.+)$", re.MULTILINE)


def triton_kernels(kept: Kept) -> Iterator[Group]:
    """Kernels without a group, or with one that names a file which is not there, by its absolute path.

    Triton 3.7 (``runtime/cache.py``, ``compiler/compiler.py``) writes the group last, passes over one whose metadata is missing,
    and fails on one whose metadata is there and whose binary is not. A group that was written in another folder (of a second
    engine, or of another ``--cache-dir``) hits nowhere but there, and would only be carried along.
    """
    for kernel, names in _by_folder(kept.paths).items():
        if not _KERNEL.search(kernel):
            continue
        groups = [name for name in names if name.startswith(_GROUP)]
        if not groups and any(_STAGE.search(name) for name in names):
            yield Group(kernel, f"no {_GROUP}*.json")
        lacks = (_lacks(kept, f"{kernel}/{group}") for group in groups)
        if missing := next(filter(None, lacks), ""):
            yield Group(kernel, missing)


def ninja_builds(kept: Kept) -> Iterator[Group]:
    """Folders with a ``build.ninja`` whose result is missing, or would lie elsewhere: a build that failed, or was killed.

    The result is what the file's ``default`` line names, as torch's, FlashInfer's and TVM's own do.
    """
    for build, names in _by_folder(kept.paths).items():
        if "build.ninja" not in names:
            continue
        found = _DEFAULT.search(_read(kept.folder / build / "build.ninja"))
        result = found[1].strip().replace("$ ", " ").replace("$:", ":") if found else ""
        if not result or os.path.relpath(kept.home / build / result, kept.home) not in kept.paths:
            yield Group(build, f"no {result or 'result'}")


def torch_builds(kept: Kept) -> Iterator[Group]:
    """As ``ninja_builds``, and folders that torch is building in, or was when it died: it removes its ``lock`` afterwards."""
    for build, names in _by_folder(kept.paths).items():
        if "build.ninja" in names and (kept.folder / build / "lock").exists():
            yield Group(build, "it is locked, so its build has not ended")
    yield from ninja_builds(kept)


def folders_with(pattern: str, *needed: str) -> Incomplete:
    """A rule: every folder whose path matches must hold certain files."""
    kind = re.compile(pattern)

    def incomplete(kept: Kept) -> Iterator[Group]:
        for name, names in _by_folder(kept.paths).items():
            lacking = [need for need in needed if need not in names]
            if lacking and kind.search(name):
                yield Group(name, f"no {' and no '.join(lacking)}")

    return incomplete


def _by_folder(paths: Collection[str]) -> Mapping[str, set[str]]:
    """The folders of a family that files lie in, and their names."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder:
            found[folder].add(name)
    return found


def _lacks(kept: Kept, group: str) -> str:
    """What a group names and the family lacks, as a clause; empty if nothing."""
    try:
        named = [str(path) for path in json.loads(_read(kept.folder / group))["child_paths"].values()]
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{os.path.basename(group)} can't be read"
    return next((f"no {path}" for path in named if os.path.relpath(path, kept.home) not in kept.paths), "")


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_NOTES_BYTES).decode(errors="replace")
    except OSError:
        return ""
