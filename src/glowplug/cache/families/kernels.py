"""What the libraries of GPU kernels write that an engine may bring along. A variable that is set for none of them costs nothing.

Facts from FlashInfer (``flashinfer/jit/{env,core,cpp_ext}.py``), DeepGEMM (``csrc/jit/{compiler,kernel_runtime}.hpp``), TileLang
(``tilelang/{env,cache/kernel_cache}.py``), TVM-FFI 0.1.15 (``tvm_ffi/cpp/extension.py``), the CuTe DSL (``jit_cache``) and the CUDA
driver's manual. None of them has been run on a GPU for this; docs/coverage.md says so.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from glowplug.cache.families.base import Family, Group, home_cache
from glowplug.cache.families.groups import folders_with, ninja_builds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.cache.families.base import Kept


def _flashinfer(env: Mapping[str, str]) -> str:
    base = env.get("FLASHINFER_WORKSPACE_BASE") or env.get("HOME")
    return os.path.join(base, ".cache", "flashinfer") if base else ""


def _tvm_ffi(env: Mapping[str, str]) -> str:
    return env.get("TVM_FFI_CACHE_DIR") or home_cache("tvm-ffi")(env)


def _no_index(kept: Kept) -> Iterator[Group]:
    """The driver finds its files through one index."""
    if kept.paths and "index" not in kept.paths:
        yield Group("", "no index")


FLASHINFER = Family(
    "flashinfer",
    ("FLASHINFER_WORKSPACE_BASE",),  # it writes into .cache/flashinfer/<version>/<architectures>/ below that
    exclude=re.compile(r"(^|/)flashinfer_jit\.log$"),
    compiled=re.compile(r"\.(so|cubin)$"),
    incomplete=ninja_builds,
    own=_flashinfer,
)
DEEP_GEMM = Family(
    "deep_gemm",
    ("DG_JIT_CACHE_DIR",),
    compiled=re.compile(r"\.(cubin|so)$"),
    # It asserts that a kernel's folder is whole, and takes the engine down where it is not.
    incomplete=folders_with(r"^cache/kernel\.[^/]+$", "kernel.cu", "kernel.cubin"),
)
TILELANG = Family(
    "tilelang",
    ("TILELANG_CACHE_DIR",),
    exclude=re.compile(r"(^|/)\.staging/"),
    compiled=re.compile(r"\.(so|cubin)$"),
    incomplete=folders_with(r"(^|/)kernels/[0-9a-f]{64}$", "params.json"),
)
TVM_FFI = Family(
    "tvm_ffi",
    ("TVM_FFI_CACHE_DIR",),
    compiled=re.compile(r"\.(so|o)$"),
    incomplete=ninja_builds,
    own=_tvm_ffi,
)
CUTE_DSL = Family("cute_dsl", ("CUTE_DSL_CACHE_DIR",), compiled=re.compile(r"\.mlir$"))
CUDA_DRIVER = Family("cuda_driver", ("CUDA_CACHE_PATH",), compiled=re.compile(r"(^|/)(?!index$)[^/]+$"), incomplete=_no_index)
