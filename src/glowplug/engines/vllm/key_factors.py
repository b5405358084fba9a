"""``cache_key_factors.json``: vLLM's own record of what made a compile cache's key.

vLLM writes it beside each rank's compiled graphs (``VllmBackend.__call__`` in ``vllm/compilation/backends.py``): the environment
it hashed, and the hashes of configuration, code and compiler. Two of them explain why a restored cache was not used. They are
only read here; a file that is not what it should be is passed over, because vLLM treats it as a note, too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.engines.environment import is_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from glowplug.cache.envelope import Json

FILE_NAME = "cache_key_factors.json"
_MOST_NAMED = 3
_VALUE = 40  # characters of a value in a message


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
    def place(self) -> str:
        """The path without the key: rank and model part, which two starts have in common."""
        return self.path.partition("/")[2].partition("/")[2]


@dataclass(frozen=True, slots=True)
class FactorDifference:
    """One factor in which two keys differ."""

    name: str
    """``env.NAME``, ``config``, ``code`` or ``compiler``."""
    ours: Json
    theirs: Json


def read_key_factors(vllm_root: Path) -> list[KeyFactors]:
    """Every readable record under a vLLM cache root (``VLLM_CACHE_ROOT``), by path."""
    found = []
    for folder, folders, files in os.walk(vllm_root / "torch_compile_cache"):
        if "inductor_cache" in folders:
            folders.remove("inductor_cache")  # thousands of files, none of them a record
        if FILE_NAME in files:
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
        if ours.env.get(name) != theirs.env.get(name)
    ]
    for name in ("config", "code", "compiler"):
        left, right = getattr(ours, f"{name}_hash"), getattr(theirs, f"{name}_hash")
        if left != right:
            differences.append(FactorDifference(name, left, right))
    return differences


def explain_miss(vllm_root: Path, restored: Collection[str]) -> str:
    """Why vLLM chose another key than the one whose files were restored.

    Args:
        vllm_root: the cache's root.
        restored: the restored files, relative to it.

    Returns:
        A clause that names the factors, with their values where they are no secrets; empty if vLLM wrote no second record.
    """
    records = read_key_factors(vllm_root)
    old = [record for record in records if record.path in restored]
    new = [record for record in records if record.path not in restored]
    pairs = [(compare_key_factors(ours, theirs), ours.path) for ours in new for theirs in old if ours.place == theirs.place]
    if not pairs:
        return ""
    differences, _ = min(pairs, key=lambda pair: len(pair[0]))
    if not differences:
        return "vLLM recorded the same factors and yet chose another key"
    named = [_describe(difference) for difference in differences[:_MOST_NAMED]]
    more = f" and {len(differences) - _MOST_NAMED} more" if len(differences) > _MOST_NAMED else ""
    return f"vLLM's own key differs in {', '.join(named)}{more}"


def _describe(difference: FactorDifference) -> str:
    name = difference.name.removeprefix("env.")
    if name == difference.name:
        return {"config": "its configuration", "code": "the text or path of its code", "compiler": "compiler, torch or device"}[
            name
        ]
    if is_secret(name):
        return name
    return f"{name} (now {json.dumps(difference.ours)[:_VALUE]}, then {json.dumps(difference.theirs)[:_VALUE]})"


def _read(path: str, name: str) -> KeyFactors | None:
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
        return KeyFactors(name, dict(tree["env"]), str(tree["config_hash"]), str(tree["code_hash"]), str(tree["compiler_hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
