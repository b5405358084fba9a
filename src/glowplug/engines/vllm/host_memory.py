"""Host memory that vLLM takes while it loads, so that a buffer beside it never gets the pod killed.

Standard library only: the loader inside the engine asks as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

# vLLM 0.32, each rank and its HTTP server, with some room: 1.5 GiB measured on a CPU.
_SERVER_BYTES = 2 * GIB
_RANK_BYTES = 3 * GIB
_CPU_KV_CACHE_GIB = 4  # where VLLM_CPU_KVCACHE_SPACE does not say


def beside_weights(ranks: int, *, on_cpu: bool, env: Mapping[str, str]) -> int:
    """Bytes for processes and, on a CPU, the KV cache of so many ranks; without the weights that a CPU keeps in the same memory."""
    needed = _SERVER_BYTES + _RANK_BYTES * ranks
    if on_cpu:
        space = env.get("VLLM_CPU_KVCACHE_SPACE", "")
        gib = float(space) if re.fullmatch(r"\d+(\.\d+)?", space) and float(space) else _CPU_KV_CACHE_GIB
        needed += int(gib * GIB) * ranks
    return needed
