"""``cache_key_factors.json``: vLLM's own record of what made a compile cache's key.

vLLM writes it beside each rank's compiled graphs (``VllmBackend.__call__`` in ``vllm/compilation/backends.py`` of 0.32.0): the
environment it hashed, and the hashes of configuration, code and compiler. Two of them explain why a restored cache was not used.
They are only read here; a file that is not what it should be is passed over, because vLLM treats it as a note, too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.engines.environment import is_secret
from glowplug.engines.model import without_credentials
from glowplug.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from glowplug.cache.envelope import Json

FILE_NAME = "cache_key_factors.json"
_MOST_BYTES = 1024 * 1024  # vLLM's are 10 KiB
_MOST_RECORDS = 512
_MOST_TEXT = 256  # characters of a value in a report
_HIDDEN = "(a secret)"
_HASHES = ("config", "code", "compiler")


@dataclass(frozen=True, slots=True)
class KeyFactors:
    """What one compile cache's key was made of.

    Attributes:
        path: the file, relative to the cache's root, such as ``torch_compile_cache/3f2a.../rank_0_0/backbone/...json``.
        env: variables as vLLM understood them, defaults included.
        config_hash: of the engine's configuration, model and version.
        code_hash: of the text and paths of the traced files.
        compiler_hash: of torch, Triton, device and Inductor's settings.
    """

    path: str
    env: Mapping[str, Json]
    config_hash: str
    code_hash: str
    compiler_hash: str

    @property
    def folder(self) -> str:
        """The cache that it belongs to, whose name is the key."""
        return self.path.split("/")[1] if self.path.count("/") else ""

    @property
    def place(self) -> str:
        """The path without the key: rank and model part, which two starts have in common."""
        return self.path.partition("/")[2].partition("/")[2]

    def to_json(self) -> dict[str, Json]:
        """For a report: without secrets, with long values cut."""
        env = {name: _short(value) if value is None or not is_secret(name) else _HIDDEN for name, value in sorted(self.env.items())}
        return {
            "path": self.path,
            "env": env,
            "config_hash": self.config_hash,
            "code_hash": self.code_hash,
            "compiler_hash": self.compiler_hash,
        }

    @classmethod
    def from_json(cls, tree: Json) -> KeyFactors:
        """Read what ``to_json`` or vLLM wrote.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(tree, dict) or not isinstance(env := tree.get("env"), dict):
            raise ValueError("not a record of key factors")  # noqa: TRY004  it came from a file
        hashes = [tree.get(f"{name}_hash") for name in _HASHES]
        if not all(isinstance(value, str) for value in hashes):
            raise ValueError("a record without its hashes")
        config_hash, code_hash, compiler_hash = map(str, hashes)
        return cls(str(tree.get("path", "")), env, config_hash, code_hash, compiler_hash)


@dataclass(frozen=True, slots=True)
class FactorDifference:
    """One factor in which two keys differ."""

    name: str
    """``env.NAME``, ``config``, ``code`` or ``compiler``."""
    ours: Json
    theirs: Json


def read_key_factors(vllm_root: Path) -> list[KeyFactors]:
    """Every readable record under a vLLM cache root (``VLLM_CACHE_ROOT``), by path; at most 512 of them."""
    found: list[KeyFactors] = []
    for folder, folders, files in os.walk(vllm_root / "torch_compile_cache"):
        if "inductor_cache" in folders:
            folders.remove("inductor_cache")  # thousands of files, none of them a record
        if FILE_NAME in files and len(found) < _MOST_RECORDS:
            path = os.path.join(folder, FILE_NAME)
            factors = _read(path, os.path.relpath(path, vllm_root))
            if factors is not None:
                found.append(factors)
    return sorted(found, key=lambda factors: factors.path)


def compare_key_factors(ours: KeyFactors, theirs: KeyFactors) -> list[FactorDifference]:
    """The factors in which two keys differ: variables by name, then the hashes."""
    differences = [
        FactorDifference(f"env.{name}", ours.env.get(name), theirs.env.get(name))
        for name in sorted(ours.env.keys() | theirs.env.keys())
        if _differ(_short(ours.env.get(name)), _short(theirs.env.get(name)))
    ]
    for name in _HASHES:
        left, right = getattr(ours, f"{name}_hash"), getattr(theirs, f"{name}_hash")
        if left != right:
            differences.append(FactorDifference(name, left, right))
    return differences


def nearest_pair(vllm_root: Path, restored: Collection[str]) -> tuple[KeyFactors, KeyFactors] | None:
    """This start's record and the restored one it differs least from; None if vLLM wrote no second record.

    Args:
        vllm_root: the cache's root.
        restored: the restored files, relative to it.
    """
    new, old = _told_apart(read_key_factors(vllm_root), restored)
    pairs = [(ours, theirs) for ours in new for theirs in old if ours.place == theirs.place]
    return min(pairs, key=lambda pair: len(compare_key_factors(*pair)), default=None)


def key_record(vllm_root: Path, restored: Collection[str]) -> dict[str, Json] | None:
    """This start's record for a report: the one that vLLM wrote, or, where it wrote none, the only one it can have used.

    Args:
        vllm_root: the cache's root.
        restored: the restored files, relative to it.
    """
    new, old = _told_apart(read_key_factors(vllm_root), restored)
    candidates = new or old
    if len({factors.folder for factors in candidates}) != 1:
        return None  # which of several keys is this start's can't be told
    return candidates[0].to_json()


def _told_apart(records: list[KeyFactors], restored: Collection[str]) -> tuple[list[KeyFactors], list[KeyFactors]]:
    """New ones, and restored ones."""
    return [record for record in records if record.path not in restored], [record for record in records if record.path in restored]


def compile_ranges(vllm_root: Path, folder: str) -> set[tuple[int, int]]:
    """The ranges of tokens that a cache's graphs were compiled for, from the names of its files.

    The largest end of them is ``max_num_batched_tokens`` (``get_compile_ranges`` in ``vllm/config/compilation.py`` of 0.32.0).
    """
    return {found for path in _artefacts(vllm_root / "torch_compile_cache" / folder) if (found := _range(path)) is not None}


def _artefacts(folder: Path) -> Iterator[str]:
    for _, folders, files in os.walk(folder):
        yield from folders  # in the unpacked format an artefact is a folder
        yield from files


def _range(name: str) -> tuple[int, int] | None:
    parts = name.removeprefix("artifact_compile_range_").split("_")
    if name.startswith("artifact_compile_range_") and len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal():
        return int(parts[0]), int(parts[1])
    return None


def _short(value: Json) -> Json:
    """The value for a report, and for a comparison with one from a report."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = without_credentials(value if isinstance(value, str) else json.dumps(value))
    return printable(text[:_MOST_TEXT])


def _differ(ours: Json, theirs: Json) -> bool:
    """Whether two values differ; of a secret that a report does not hold, whether only one side has one."""
    if _HIDDEN in (ours, theirs):
        return None in (ours, theirs)
    return ours != theirs


def _read(path: str, name: str) -> KeyFactors | None:
    try:
        with open(path, "rb") as file:
            tree = json.loads(file.read(_MOST_BYTES))
        return KeyFactors.from_json({**tree, "path": name})
    except (OSError, ValueError, TypeError, RecursionError):
        return None
