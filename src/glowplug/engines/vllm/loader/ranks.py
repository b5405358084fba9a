"""Which of the engine's processes on this node this is, and how many there are.

From vLLM's configuration alone, by names that versions 0.21 to 0.33 share; what a version lacks counts as 1 rank or 0. Imports no
vLLM: the configuration is handed in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """One process among those of its engine on its node.

    Attributes:
        rank: from 0.
        ranks: how many load the model on this node.
        engine: the same text in all of them, and another one in every other engine.
        is_replica: there may be data-parallel replicas beside it that it was not told of; their ranks are not in ``ranks``.
        on_cpu: it computes on the processor, and keeps the weights in the host's memory.
    """

    rank: int
    ranks: int
    engine: str
    is_replica: bool = False
    on_cpu: bool = False


def place_of(config: Any) -> Place:
    """This process's place, from vLLM's ``VllmConfig``."""
    parallel = getattr(config, "parallel_config", None)
    replica = max(1, _number(parallel, "local_world_size") or _number(parallel, "world_size") or 1)
    rank = (_number(parallel, "rank") or 0) % replica
    engine = str(getattr(config, "instance_id", "") or os.getppid())
    index = _number(parallel, "data_parallel_index") or 0
    replicas = _number(parallel, "data_parallel_size_local") or 1
    local = _number(parallel, "data_parallel_rank_local")
    on_cpu = getattr(getattr(config, "device_config", None), "device_type", "") == "cpu"
    if (_number(parallel, "data_parallel_size") or 1) == 1:
        # Data-parallel ranks of a dense model are told that they are alone; each replica then has a feeder of its own.
        return Place(rank + replica * (local or 0), replica, f"{engine}.{index}", is_replica=local is not None, on_cpu=on_cpu)
    return Place(rank + replica * ((index if local is None else local) % replicas), replica * replicas, engine, on_cpu=on_cpu)


def draft_follows(config: Any, path: str) -> bool:
    """Whether this process will load a draft model from the same checkpoint (MTP), by the same loader, after the model itself."""
    speculative = getattr(config, "speculative_config", None)
    draft = getattr(getattr(speculative, "draft_model_config", None), "model", None)
    if not isinstance(draft, str) or getattr(speculative, "draft_load_config", None) is not None:
        return False
    # In a pipeline only the last stage has the draft; what the others kept, nobody would let go.
    return (_number(config.parallel_config, "pipeline_parallel_size") or 1) == 1 and os.path.realpath(draft) == os.path.realpath(
        path
    )


def _number(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
