"""Interleaved rounds: everything that is compared runs once a round, and the order turns from round to round.

What the machine does besides (another job, a throttled processor) then meets all of them alike, and ratios are taken within a
round.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import checkpoints, vllm_env

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def run(contenders: Mapping[str, Callable[[], dict[str, Any]]], n: int) -> dict[str, list[dict[str, Any]]]:
    """Let each run ``n`` times; returns its samples in the order of the rounds."""
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(n):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            sample = contenders[name]()
            samples[name].append(sample)
            figures = ", ".join(f"{key} {value:.3f}" for key, value in sample.items() if isinstance(value, float))
            print(f"round {number + 1} of {n}: {name}: {figures}", flush=True)
    return samples


def column(samples: list[dict[str, Any]], key: str) -> list[float]:
    """One figure of all samples."""
    return [float(sample[key]) for sample in samples]


def cpu_per_gb(samples: list[dict[str, Any]]) -> list[float]:
    """Processor seconds for each 10^9 bytes delivered."""
    return [sample["cpu_s"] / sample["bytes"] * 1e9 for sample in samples]


def gb_per_s(samples: list[dict[str, Any]]) -> list[float]:
    """10^9 bytes a second."""
    return [sample["bytes"] / sample["wall_s"] / 1e9 for sample in samples]


def require_equal(samples: Mapping[str, list[dict[str, Any]]]) -> None:
    """All have delivered the same: as many tensors and bytes, and the same sum of the bytes that were read."""
    seen = {(sample["bytes"], sample["tensors"], sample["sample"]) for each in samples.values() for sample in each}
    if len(seen) != 1:
        sys.exit(f"the loaders did not deliver the same: {seen}")


def peers_python() -> Path:
    """The interpreter that has the other loaders."""
    python = vllm_env.peers_python()
    if python is None:
        sys.exit("the other loaders are not set up: make bench")
    return python


def vllm_python() -> Path:
    """The interpreter that has vLLM."""
    python = vllm_env.vllm_python()
    if python is None:
        sys.exit("vLLM is not set up: make testbed")
    return python


def bucket_with_checkpoint(size_bytes: int) -> Path:
    """A folder for a range server whose bucket ``bench`` holds a plain checkpoint ``model``; kept in the developer's cache."""
    root = vllm_env.dev_cache() / f"bench-checkpoint-{size_bytes // 1_000_000}MB-{_version()}"
    checkpoints.make_plain_checkpoint(root / "bench" / "model", size_bytes=size_bytes)
    return root


def _version() -> str:
    return vllm_env.short_digest(Path(checkpoints.__file__))
