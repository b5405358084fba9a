"""What torch, Triton and vLLM write. Facts from torch 2.13, Triton 3.7 and vLLM 0.32.0."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from glowplug.cache.families.base import Family, Group
from glowplug.cache.families.groups import folders_with, torch_builds, triton_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.cache.families.base import Kept

_deep_gemm_in_vllm = folders_with(r"^deep_gemm/cache/kernel\.[^/]+$", "kernel.cu", "kernel.cubin")


def _incomplete_in_vllm(kept: Kept) -> Iterator[Group]:
    yield from triton_kernels(kept)  # in inductor_cache/triton/, rocm_segmented_attention/triton/
    yield from _deep_gemm_in_vllm(kept)


def _incomplete_headers(kept: Kept) -> Iterator[Group]:
    """A built header without its source, or the other way round: the compiler looks for both, side by side."""
    for path in kept.paths:
        partner = path.removesuffix(".gch") if path.endswith(".gch") else f"{path}.gch"
        if partner not in kept.paths:
            yield Group(path, f"no {partner}")


def _extensions(env: Mapping[str, str]) -> str:
    """``torch.utils.cpp_extension.get_default_build_root``, or what the user has set instead."""
    if env.get("TORCH_EXTENSIONS_DIR"):
        return env["TORCH_EXTENSIONS_DIR"]
    cache = env.get("XDG_CACHE_HOME") or (os.path.join(env["HOME"], ".cache") if env.get("HOME") else "")
    return os.path.join(cache, "torch_extensions") if cache else ""


VLLM = Family(
    "vllm",
    # Holds the startup plan, model infos, and FlashInfer's autotuning unless VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR moves that.
    ("VLLM_CACHE_ROOT",),
    # assets: downloaded config files, found again by URL. outlines: unbounded, and unsafe with hostile users (vLLM's own comment).
    exclude=re.compile(r"^(assets|outlines|dummy_cache|xla_cache)/"),
    compiled=re.compile(
        r"^torch_compile_cache/.*/(rank_\d+_\d+/|inductor_cache/)(?!.*(cache_key_factors\.json|computation_graph\.py|transformed_code\.py)$)"
        r"|^deep_gemm/|^rocm_segmented_attention/triton/|^neuron/"
    ),
    incomplete=_incomplete_in_vllm,
)
INDUCTOR = Family("inductor", ("TORCHINDUCTOR_CACHE_DIR",), incomplete=triton_kernels)
INDUCTOR_HEADERS = Family(
    "inductor_headers",
    (),  # no variable moves them: see temp_links.py
    compiled=re.compile(r"\.gch$"),
    incomplete=_incomplete_headers,
)
TRITON = Family("triton", ("TRITON_CACHE_DIR",), incomplete=triton_kernels)
TORCH_EXTENSIONS = Family(
    "torch_extensions",
    ("TORCH_EXTENSIONS_DIR",),
    compiled=re.compile(r"\.so$"),
    incomplete=torch_builds,
    own=_extensions,
)
