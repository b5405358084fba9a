"""Cache families: which files make up a compile cache, which of them are junk, and which prove that something was compiled.

Every family lives in a folder of its own under one canonical root, so that one tree can be restored and captured whole. A family
names the environment variables that send its writer there. docs/caches.md is the table for readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.cache.families.base import Family, chosen, environment
from glowplug.cache.families.kernels import CUDA_DRIVER, CUTE_DSL, DEEP_GEMM, FLASHINFER, TILELANG, TVM_FFI
from glowplug.cache.families.torch import INDUCTOR, INDUCTOR_HEADERS, TORCH_EXTENSIONS, TRITON, VLLM

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CUDA_DRIVER",
    "CUTE_DSL",
    "DEEP_GEMM",
    "FAMILIES",
    "FLASHINFER",
    "INDUCTOR",
    "INDUCTOR_HEADERS",
    "JIT",
    "TILELANG",
    "TORCH_EXTENSIONS",
    "TRITON",
    "TVM_FFI",
    "VLLM",
    "Family",
    "chosen",
    "environment",
]

JIT = (
    INDUCTOR, INDUCTOR_HEADERS, TRITON, TORCH_EXTENSIONS, FLASHINFER, DEEP_GEMM, TILELANG, TVM_FFI, CUTE_DSL, CUDA_DRIVER,
)  # fmt: skip
"""What any program that runs torch may write, whichever engine it is."""

FAMILIES: Mapping[str, Family] = {family.name: family for family in (VLLM, *JIT)}
"""Every known family by name. A bundle whose members belong to none of them is refused: a version that does not know a family yet
starts cold, and publishes a bundle of its own."""
