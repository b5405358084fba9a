"""Why vLLM did not use what was restored, from its own records of both keys: what differs, and what to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glowplug.cache.explain.causes import Cause
from glowplug.cache.explain.classify import kind_of
from glowplug.cache.explain.kinds import LIKELY_ACCIDENT
from glowplug.cache.explain.text import shortened
from glowplug.engines.environment import is_secret
from glowplug.engines.vllm.key_factors import compare_key_factors, compile_ranges, nearest_pair
from glowplug.engines.vllm.poisoners import KNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from glowplug.engines.vllm.key_factors import FactorDifference, KeyFactors

_MOST_NAMED = 3
_VALUE = 40  # characters of a value in a message
_GRAPH = "computation_graph.py"
_MOST_GRAPH_BYTES = 16 * 1024 * 1024


_HASHED = {
    "config": (
        "its configuration",
        "write down what vLLM otherwise derives from the node (max_num_batched_tokens, max_num_seqs, max_model_len), and alike",
    ),
    "code": ("the text or path of its code", "use the same image: the same vLLM, in the same folder"),
    "compiler": ("compiler, torch or device", "use the same image and the same kind of device"),
}


def factors(ours: KeyFactors, theirs: KeyFactors) -> list[Cause]:
    """The factors in which two records differ, the likeliest accident first; the hashes last.

    Their paths are variables, or ``config``, ``code`` and ``compiler``.
    """
    found = [_factor(difference) for difference in compare_key_factors(ours, theirs)]
    return sorted(found, key=lambda factor: (factor.path in _HASHED, -factor.likelihood, factor.path))


def explain_miss(vllm_root: Path, restored: Collection[str]) -> str:
    """Why vLLM chose another key than the one whose files were restored.

    Args:
        vllm_root: the cache's root.
        restored: the restored files, relative to it.

    Returns:
        A clause that names the factors, with their values where they are no secrets, and what to do about the first; empty if vLLM
        wrote no second record.
    """
    pair = nearest_pair(vllm_root, restored)
    if pair is None:
        return ""
    found = factors(*pair)
    if not found:
        return "vLLM recorded the same factors and yet chose another key"
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    named = ", ".join(_text(factor) for factor in found[:_MOST_NAMED])
    hint = _behind_config(vllm_root, *pair) if any(factor.path == "config" for factor in found) else ""
    return f"vLLM's own key differs in {named}{more}{hint}: {found[0].fix}"


def _behind_config(vllm_root: Path, ours: KeyFactors, theirs: KeyFactors) -> str:
    """What else tells two configurations apart, since vLLM records only their hash."""
    here, there = (compile_ranges(vllm_root, record.folder) for record in (ours, theirs))
    if here and there and (ends := (_end(here), _end(there)))[0] != ends[1]:
        return f" (max_num_batched_tokens now {ends[0]}, then {ends[1]})"
    graphs = [_graph(vllm_root, record) for record in (ours, theirs)]
    if None in graphs:
        return ""
    if graphs[0] == graphs[1]:
        return " (the model's graph is the same, so it is a limit or a size, such as max_model_len or the capture sizes)"
    return " (the model's graph differs too: another model, dtype, quantization or parallelism)"


def _end(ranges: Iterable[tuple[int, int]]) -> int:
    return max(end for _, end in ranges)


def _graph(vllm_root: Path, record: KeyFactors) -> bytes | None:
    try:
        with open((vllm_root / record.path).with_name(_GRAPH), "rb") as file:
            return file.read(_MOST_GRAPH_BYTES)
    except OSError:
        return None


def _factor(difference: FactorDifference) -> Cause:
    name = difference.name.removeprefix("env.")
    if name == difference.name:
        what, fix = _HASHED[name]
        return Cause(name, json.dumps(difference.ours), json.dumps(difference.theirs), "hash", 0.0, 0.0, what, fix)
    path = f"environment.{name}"
    kind, fact = kind_of(path, difference.ours, difference.theirs), KNOWN.get(path)
    if is_secret(name):
        return Cause(name, None, None, "secret", LIKELY_ACCIDENT, 0.0, "a secret", "use a vLLM that keeps it out of its key")
    ours, theirs = json.dumps(difference.ours), json.dumps(difference.theirs)
    if fact is not None:
        return Cause(name, ours, theirs, kind.name, fact.likelihood, kind.distance, fact.what, fact.fix)
    return Cause(name, ours, theirs, kind.name, kind.likelihood, kind.distance, kind.what, kind.fix)


def _text(factor: Cause) -> str:
    """``VLLM_X (now 1, then 2)``; of a hash what is behind it, of a secret the name."""
    if factor.kind == "hash":
        return factor.what
    if factor.ours is None or factor.theirs is None:
        return factor.path
    return f"{factor.path} (now {shortened(factor.ours, _VALUE)}, then {shortened(factor.theirs, _VALUE)})"
