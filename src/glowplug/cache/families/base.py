"""What a family is: one writer's cache, in a folder of its own under the live root, with its rules. Nothing here knows an engine.

Three rules. *Exclusion* leaves out junk, file by file: locks, temporary files, logs. *Completeness* leaves out groups of files that
only work together and of which one is missing, because a writer was killed or failed half-way: several libraries crash on half a
kernel where they would have compiled a missing one. *Compiled* tells code from the notes beside it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    Incomplete = Callable[["Kept"], Iterator["Group"]]

# Never part of any bundle: locks, temporary files of atomic writers, editors' and file systems' litter.
_JUNK = re.compile(
    r"(^|/)(locks?|tmp|\.tmp|__pycache__|dummy_cache)/"  # Inductor's locks/, DeepGEMM's tmp/, vLLM's dummy_cache/
    r"|(^|/)tmp\.(pid_)?\d+[^/]*(/|$)"  # Triton and CuTe: tmp.pid_<pid>_<uuid>/
    r"|(^|/)\.\d+\.\d+\.tmp$"  # torch's write_atomic: .<pid>.<thread>.tmp
    r"|(^|/)\.(nfs|fuse_hidden)[^/]*$"
    r"|(^|/)lock$"  # torch's extensions wait for ever where one is left behind
    r"|\.(lock|tmp|incomplete|pid)$"
    r"|(^|/)\.glowplug[^/]*(/|$)"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a family's files after the exclusions.

    Attributes:
        folder: where they lie.
        home: the path that the folder has on every node, for its first engine. Some writers put absolute paths into their files.
        paths: relative to the folder, with ``/``.
    """

    folder: Path
    home: Path
    paths: Collection[str]


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are of no use, or do harm, as they are.

    Attributes:
        path: a file, or a folder with all that is below it, relative to the family's folder; empty for the whole family.
        lacks: what is missing, as a clause.
    """

    path: str
    lacks: str


@dataclass(frozen=True, slots=True)
class Family:
    """One writer's cache: its folder under the root, the variables that point at it, and its rules.

    Attributes:
        name: the folder's name under the root, and the first part of every member's path in a bundle.
        variables: environment variables set to the folder's absolute path.
        exclude: paths (relative to the family's folder) that are left out besides the common junk.
        compiled: paths that hold compiled code; a new one after a start proves that the engine compiled. None matches nothing.
        incomplete: finds the groups that are left out because something in them is missing.
        own: where the writer keeps its files in an environment as it is; empty where that does not matter (see ``chosen``).
    """

    name: str
    variables: tuple[str, ...]
    exclude: re.Pattern[str] | None = None
    compiled: re.Pattern[str] | None = field(default_factory=lambda: re.compile(r"."))
    incomplete: Incomplete = lambda _kept: iter(())
    own: Callable[[Mapping[str, str]], str] = lambda _env: ""

    def keeps(self, path: str) -> bool:
        """Whether a file belongs into a bundle. ``path`` is relative to the family's folder, with ``/``."""
        return not _JUNK.search(path) and not (self.exclude and self.exclude.search(path))

    def is_compiled(self, path: str) -> bool:
        """Whether a file holds compiled code, as opposed to notes beside it."""
        return bool(self.compiled and self.compiled.search(path))


def environment(families: Iterable[Family], root: Path) -> dict[str, str]:
    """The variables that send every family under ``root``, an absolute path."""
    return {variable: str(root / family.name) for family in families for variable in family.variables}


def chosen(families: Iterable[Family], env: Mapping[str, str]) -> tuple[Family, ...]:
    """The families whose writers are sent under the live root.

    One whose own folder holds something is left there: the image or the user has filled it, and may have done so with what can't be
    had again on this node, such as downloaded kernels, or extensions for which there is no compiler.

    Args:
        families: what the engine writes.
        env: its environment, before the cache variables are set.
    """
    return tuple(family for family in families if not _holds_something(family.own(env)))


def home_cache(*names: str) -> Callable[[Mapping[str, str]], str]:
    """For ``Family.own``: a folder in ``~/.cache``."""
    return lambda env: os.path.join(env["HOME"], ".cache", *names) if env.get("HOME") else ""


def _holds_something(folder: str) -> bool:
    if not folder:
        return False
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
