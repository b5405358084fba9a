"""The packages of an interpreter that matter to compiled code, read from their metadata and never imported.

Versions come from the names of ``*.dist-info`` folders. For the few packages whose own files end up in cache keys (the engine,
torch, triton) a digest is taken too, because wheels are rebuilt under the same version: of the code lines of ``RECORD`` where a
wheel was installed, or of names, sizes and times where the package is edited in place. Only names that matter are kept, so that an
upgrade of an unrelated package does not cost a compile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glowplug.cache.envelope import Json

_INFO = re.compile(r"(.+?)-([^-]+)(?:-[^-]+)?\.(?:dist|egg)-info")
_SEPARATORS = re.compile(r"[-_.]+")
# Compilers, kernel libraries, runtimes that kernels link to, and the libraries whose Python code vLLM and SGLang trace.
_EXACT = frozenset(
    """
    apache-tvm-ffi compressed-tensors cuda-bindings cuda-python deep-gemm deep-ep flash-attn flash-attn-3 flash-mla humming-kernels
    intel-extension-for-pytorch kernels libneuronxla nki pytorch-triton quack-kernels sgl-kernel sglang sglang-kernel tilelang
    tokenspeed-mla torch torch-neuronx torch-xla torchao transformers vllm xformers zentorch
    """.split()  # noqa: SIM905
)
_PREFIXES = (
    "amd-aiter", "flashinfer-", "jax", "libnrt", "neuronx-", "nvidia-cuda-", "nvidia-cublas", "nvidia-cudnn",
    "nvidia-cutlass", "nvidia-nccl", "nvidia-nvjitlink", "nvidia-nvshmem", "pytorch-triton-", "triton", "vllm-",
)  # fmt: skip
_RECORD_CODE = re.compile(rb"^(?!\.\./)([^,\n]*\.(?:py|so)[.0-9]*,sha256=[^,\n]*)", re.MULTILINE)
_CODE = (".py", ".so", ".cu", ".cuh", ".h")
_MAX_FILES = 50_000  # a folder that holds more is no package
_TORCH_FIELD = re.compile(r"^(cuda|hip|git_version)(?:\s*:[^=]+)?\s*=\s*['\"]([^'\"]*)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution."""

    name: str
    """Normalised as PyPI does it: lower case, dashes."""
    version: str
    folder: str
    """The entry of ``sys.path`` it was found in."""
    info: str
    """Its ``*.dist-info`` folder."""

    def provides(self, package: str) -> bool:
        """Whether its wheel brought this top-level package."""
        record = _read(os.path.join(self.info, "RECORD"), 64 * 1024 * 1024)
        return f"\n{package}/__init__.py,".encode() in b"\n" + record


def installed(sys_path: Iterable[str]) -> dict[str, Distribution]:
    """Every distribution by its normalised name; the first on ``sys_path`` wins, as it does for Python."""
    found: dict[str, Distribution] = {}
    for folder in dict.fromkeys(sys_path):
        with (
            contextlib.suppress(OSError),
            os.scandir(folder) as entries,
        ):  # archives and folders that do not exist are no places to look
            for entry in entries:
                if entry.name.endswith("-info") and (match := _INFO.fullmatch(entry.name)):
                    name = normalise(match[1])
                    found.setdefault(name, Distribution(name, match[2], folder, entry.path))
    return found


def normalise(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return _SEPARATORS.sub("-", name).lower()


def relevant(distributions: Mapping[str, Distribution]) -> dict[str, str]:
    """Name and version of those that matter to compiled code."""
    return {
        name: distribution.version
        for name, distribution in sorted(distributions.items())
        if name in _EXACT or name.startswith(_PREFIXES)
    }


def plugins(distributions: Mapping[str, Distribution], group: str) -> dict[str, str]:
    """Name and version of distributions with entry points in a group that starts with ``group``, such as ``vllm.``."""
    heading = f"[{group}".encode()
    return {
        name: distribution.version
        for name, distribution in sorted(distributions.items())
        if heading in _read(os.path.join(distribution.info, "entry_points.txt"), 1024 * 1024)
    }


def package_folder(sys_path: Iterable[str], package: str) -> str | None:
    """Where ``import package`` finds it; None if nowhere. Import hooks (some editable installs) are not asked."""
    for folder in sys_path:
        path = os.path.join(folder, package)
        if os.path.isfile(os.path.join(path, "__init__.py")):
            return path
    return None


def build(distribution: Distribution | None, folder: str | None) -> dict[str, Json]:
    """What tells a rebuilt or edited package from its namesake: 16 hex digits of a digest; empty if there is nothing to read.

    Args:
        distribution: the package's metadata.
        folder: the package's folder, read where the metadata lists no code.
    """
    if distribution is not None:
        lines = _RECORD_CODE.findall(_read(os.path.join(distribution.info, "RECORD"), 64 * 1024 * 1024))
        if len(lines) > 2:  # an editable install lists a finder and its .pth file at most
            return {"record": _digest(b"\n".join(sorted(lines)))}  # installers sort differently
    if folder is None:
        return {}
    return {"edited": _digest("\n".join(sorted(_stamps(folder))).encode(errors="surrogateescape"))}


def torch_build(folder: str | None) -> dict[str, Json]:
    """CUDA or HIP version and commit, from ``torch/version.py``; empty if there is none."""
    if folder is None:
        return {}
    text = _read(os.path.join(folder, "version.py"), 64 * 1024).decode(errors="replace")
    return {name: value for name, value in _TORCH_FIELD.findall(text)}  # noqa: C416  the annotation needs the comprehension


def _stamps(folder: str) -> list[str]:
    """Path, size and modification time of each code file."""
    stamps: list[str] = []
    pending = [folder]
    while pending and len(stamps) < _MAX_FILES:
        here = pending.pop()
        with contextlib.suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__" and not entry.name.startswith("."):
                        pending.append(entry.path)
                elif entry.name.endswith(_CODE):
                    status = entry.stat()
                    stamps.append(f"{os.path.relpath(entry.path, folder)} {status.st_size} {status.st_mtime_ns}")
    return stamps


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _read(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
