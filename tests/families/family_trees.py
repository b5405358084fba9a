"""A tree of each family, laid out as its writer lays it out: what is kept, what is junk, and groups that something is missing from.

``{root}`` in a content stands for the live folder's path, as its writer would have put it there.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from glowplug.cache.families import (
    CUDA_DRIVER,
    CUTE_DSL,
    DEEP_GEMM,
    FLASHINFER,
    INDUCTOR,
    INDUCTOR_HEADERS,
    TILELANG,
    TORCH_EXTENSIONS,
    TRITON,
    TVM_FFI,
    VLLM,
)

K1, K2, K3, K4, K5, K6 = (letter * 52 for letter in "ABCDEF")
HEX = "ab" * 32


class Tree(NamedTuple):
    family: object
    kept: dict[str, str]
    junk: tuple[str, ...]
    broken: dict[str, str]
    """Files of incomplete groups."""
    lacks: tuple[str, ...] = ()
    """What is said of them, each a part of one line."""
    compiled: tuple[str, ...] = ()
    """Of those kept."""


def group(folder, *names):
    return json.dumps({"child_paths": {name: f"{{root}}/{folder}/{name}" for name in names}}).replace("{root}", "ROOT")


def ninja(default):
    return (
        f"ninja_required_version = 1.3\nrule compile\n  command = c++ $in -o $out\nbuild {default}: compile a\ndefault {default}\n"
    )


_OP = ".cache/flashinfer/0.6.1/90a/cached_ops"
_TL = "0.1.9/linux-x86_64"

TREES = [
    Tree(
        VLLM,
        kept={
            f"torch_compile_cache/torch_aot_compile/{HEX}/rank_0_0/model": "aot",
            f"torch_compile_cache/torch_aot_compile/{HEX}/inductor_cache/ab/cab.so": "so",
            "torch_compile_cache/0123456789/rank_0_0/backbone/artifact_compile_range_1_8_subgraph_0": "graph",
            "torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py": "{}",
            "torch_compile_cache/0123456789/rank_0_0/backbone/cache_key_factors.json": "{}",
            "modelinfos/vllm-model_executor-models-opt-OPTForCausalLM.json": "{}",
            "startup_plan/startup_plan_0123456789abcdef.json": "{}",
            f"flashinfer_autotune_cache/0.6.1/90a/{HEX}/autotune_configs.json": "{}",
            "deep_gemm/cache/kernel.fp8_gemm.0123/kernel.cu": "cu",
            "deep_gemm/cache/kernel.fp8_gemm.0123/kernel.cubin": "cubin",
            f"rocm_segmented_attention/triton/{K1}/k.hsaco": "hsaco",
            f"rocm_segmented_attention/triton/{K1}/k.json": "{}",
            f"rocm_segmented_attention/triton/{K1}/__grp__k.json": group(
                f"vllm/rocm_segmented_attention/triton/{K1}", "k.hsaco", "k.json"
            ),
        },
        junk=(
            "dummy_cache/x",
            "assets/model_streamer/01234567/config.json",
            "outlines/cache.db",
            "xla_cache/x",
            "deep_gemm/tmp/0a1b/kernel.cu",
            f"flashinfer_autotune_cache/0.6.1/90a/{HEX}/.autotune_configs.json.x1y2.tmp",
        ),
        broken={
            "deep_gemm/cache/kernel.half.0123/kernel.cu": "cu",
            f"rocm_segmented_attention/triton/{K2}/k.ttir": "ttir",
        },
        lacks=("kernel.half.0123: no kernel.cubin", f"{K2}: no __grp__"),
        compiled=(
            f"torch_compile_cache/torch_aot_compile/{HEX}/rank_0_0/model",
            f"torch_compile_cache/torch_aot_compile/{HEX}/inductor_cache/ab/cab.so",
            "torch_compile_cache/0123456789/rank_0_0/backbone/artifact_compile_range_1_8_subgraph_0",
            "torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py",
            "deep_gemm/cache/kernel.fp8_gemm.0123/kernel.cu",
            "deep_gemm/cache/kernel.fp8_gemm.0123/kernel.cubin",
            f"rocm_segmented_attention/triton/{K1}/k.hsaco",
            f"rocm_segmented_attention/triton/{K1}/k.json",
            f"rocm_segmented_attention/triton/{K1}/__grp__k.json",
        ),
    ),
    Tree(
        INDUCTOR,
        kept={
            "fxgraph/ab/fab/entry": "graph",
            "aotautograd/aab/entry": "graph",
            "ab/cab.cpp": "cpp",
            "ab/cab.so": "so",
            "cd/ccd.cubin": "a cubin of torch's own, in no kernel's folder",
            f"triton/0/{K1}/k.cubin": "cubin",
            f"triton/0/{K1}/__grp__k.json": group(f"inductor/triton/0/{K1}", "k.cubin"),
        },
        junk=("locks/cab.lock", "ab/.1234.5678.tmp", "ab/__pycache__/cab.cpython-311.pyc", ".tmp/x"),
        broken={f"triton/0/{K2}/k.cubin": "cubin"},
        lacks=(f"{K2}: no __grp__",),
    ),
    Tree(
        INDUCTOR_HEADERS,
        kept={"cab.h": "#include <torch.h>", "cab.h.gch": "gpch"},
        junk=("locks/cab.lock", ".1234.5678.tmp", ".glowplug-0123.tmp"),
        broken={"calone.h.gch": "gpch", "cnever.h": "#include <torch.h>"},
        lacks=("calone.h.gch: no calone.h", "cnever.h: no cnever.h.gch"),
        compiled=("cab.h.gch",),
    ),
    Tree(
        TRITON,
        kept={
            f"{K1}/add.ttir": "ttir",
            f"{K1}/add.cubin": "cubin",
            f"{K1}/add.json": "{}",
            f"{K1}/__grp__add.json": group(f"triton/{K1}", "add.ttir", "add.cubin", "add.json"),
            f"{K2}/cuda_utils.cpython-311-x86_64-linux-gnu.so": "so",
            f"{K3}/add.autotune.json": "{}",
        },
        junk=(f"{K1}/tmp.pid_12_0b0c/add.ptx", f"{K1}/lock"),
        broken={
            f"{K4}/add.ttir": "killed before the group was written",
            f"{K5}/add.json": "{}",
            f"{K5}/__grp__add.json": group(f"triton/{K5}", "add.cubin", "add.json"),
            f"{K6}/add.json": "{}",
            f"{K6}/__grp__add.json": json.dumps({"child_paths": {"add.json": f"/another/folder/triton/{K6}/add.json"}}),
        },
        lacks=(f"{K4}: no __grp__*.json", f"/triton/{K5}/add.cubin", f"no /another/folder/triton/{K6}/add.json"),
    ),
    Tree(
        TORCH_EXTENSIONS,
        kept={
            "op/build.ninja": ninja("op.so"),
            "op/.ninja_log": "# ninja log v7",
            "op/.ninja_deps": "# ninjadeps",
            "op/main.cpp": "int main",
            "op/main.o": "o",
            "op/op.so": "so",
        },
        junk=(),
        broken={
            "failed/build.ninja": ninja("failed.so"),
            "failed/main.o": "o",
            "busy/build.ninja": ninja("busy.so"),
            "busy/busy.so": "half",
            "busy/lock": "",
        },
        lacks=("failed: no failed.so", "busy: it is locked"),
        compiled=("op/op.so",),
    ),
    Tree(
        FLASHINFER,
        kept={
            f"{_OP}/single_prefill/build.ninja": ninja(f"ROOT/flashinfer/{_OP}/single_prefill/single_prefill.so"),
            f"{_OP}/single_prefill/.ninja_log": "# ninja log v7",
            f"{_OP}/single_prefill/.ninja_deps": "# ninjadeps",
            f"{_OP}/single_prefill/a.cuda.o": "o",
            f"{_OP}/single_prefill/single_prefill.so": "so",
            ".cache/flashinfer/0.6.1/90a/generated/single_prefill/a.cu": "cu",
            ".cache/flashinfer/cubins/ab12/fmha/x.cubin": "cubin",
        },
        junk=(
            ".cache/flashinfer/0.6.1/90a/flashinfer_jit.log",
            f"{_OP}/tmp/single_prefill.lock",
            f"{_OP}/tmp/flashinfer_jit.ninja",
        ),
        broken={
            f"{_OP}/page/build.ninja": ninja(f"ROOT/flashinfer/{_OP}/page/page.so"),
            f"{_OP}/page/a.cuda.o": "o",
            f"{_OP}/moved/build.ninja": ninja(f"/another/folder/{_OP}/moved/moved.so"),
            f"{_OP}/moved/moved.so": "so",
        },
        lacks=(f"/{_OP}/page/page.so", f"no /another/folder/{_OP}/moved/moved.so"),
        compiled=(f"{_OP}/single_prefill/single_prefill.so", ".cache/flashinfer/cubins/ab12/fmha/x.cubin"),
    ),
    Tree(
        DEEP_GEMM,
        kept={
            "cache/kernel.fp8_gemm.0123/kernel.cu": "cu",
            "cache/kernel.fp8_gemm.0123/kernel.cubin": "cubin",
        },
        junk=("tmp/0a1b/kernel.cu",),
        broken={"cache/kernel.one.0123/kernel.cu": "cu", "cache/kernel.other.0123/kernel.cubin": "cubin"},
        lacks=("kernel.one.0123: no kernel.cubin", "kernel.other.0123: no kernel.cu"),
        compiled=("cache/kernel.fp8_gemm.0123/kernel.cubin",),
    ),
    Tree(
        TILELANG,
        kept={
            f"{_TL}/kernels/{HEX}/device_kernel.cu": "cu",
            f"{_TL}/kernels/{HEX}/kernel_lib.so": "so",
            f"{_TL}/kernels/{HEX}/params.json": "[]",
            "autotuner/0123/best_config.json": "{}",
        },
        junk=(f"{_TL}/.staging/0123/kernel_lib.so", "tmp/x.cu"),
        broken={f"{_TL}/kernels/{'cd' * 32}/kernel_lib.so": "so"},
        lacks=(f"{'cd' * 32}: no params.json",),
        compiled=(f"{_TL}/kernels/{HEX}/kernel_lib.so",),
    ),
    Tree(
        TVM_FFI,
        kept={
            "op_0123/build.ninja": ninja("op.so"),
            "op_0123/.ninja_log": "# ninja log v7",
            "op_0123/main.cpp": "int main",
            "op_0123/op.so": "so",
        },
        junk=("op_0123/lock",),
        broken={"bad_0123/build.ninja": ninja("bad.so"), "bad_0123/lock": ""},
        lacks=("bad_0123: no bad.so",),
        compiled=("op_0123/op.so",),
    ),
    Tree(
        CUTE_DSL,
        kept={"cute_dsl_0123abcd.mlir": "bytecode", "cutlass_0123abcd.mlir": "bytecode"},
        junk=("tmp.pid_12_0b0c/cute_dsl_0123abcd.mlir",),
        broken={},
        compiled=("cute_dsl_0123abcd.mlir", "cutlass_0123abcd.mlir"),
    ),
    Tree(
        CUDA_DRIVER,
        kept={"index": "index", "a/b/0123456789abcd": "cubin"},
        junk=(),
        broken={},
        compiled=("a/b/0123456789abcd",),
    ),
]
