"""Cache families: which files make up a compile cache, which of them are junk, and which prove that something was compiled.

Every family lives in a folder of its own under one canonical root, so that one tree can be restored and captured whole. A family
names the environment variables that send its writer there. Nothing here knows an engine's command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Never part of any bundle: locks, temporary files of atomic writers, editors' and file systems' litter.
_JUNK = re.compile(
    r"(^|/)(locks?|tmp|\.tmp|__pycache__|dummy_cache)/"  # Inductor's locks/, Triton's tmp.pid_*/ (below), vLLM's dummy_cache/
    r"|(^|/)tmp\.(pid_)?\d+[^/]*(/|$)"  # Triton: tmp.pid_<pid>_<uuid>/
    r"|(^|/)\.\d+\.\d+\.tmp$"  # torch's write_atomic: .<pid>.<thread>.tmp
    r"|(^|/)\.(nfs|fuse_hidden)[^/]*$"
    r"|\.(lock|tmp|incomplete|pid)$"
    r"|(^|/)\.glowplug[^/]*(/|$)"
)


@dataclass(frozen=True, slots=True)
class Family:
    """One writer's cache: its folder under the root, the variables that point at it, and its rules.

    Attributes:
        name: the folder's name under the root, and the first part of every member's path in a bundle.
        variables: environment variables set to the folder's absolute path.
        exclude: paths (relative to the family's folder) that are left out besides the common junk.
        compiled: paths that hold compiled code; a new one after a start proves that the engine compiled. None matches nothing.
    """

    name: str
    variables: tuple[str, ...]
    exclude: re.Pattern[str] | None = None
    compiled: re.Pattern[str] | None = field(default_factory=lambda: re.compile(r"."))

    def keeps(self, path: str) -> bool:
        """Whether a file belongs into a bundle. ``path`` is relative to the family's folder, with ``/``."""
        return not _JUNK.search(path) and not (self.exclude and self.exclude.search(path))

    def is_compiled(self, path: str) -> bool:
        """Whether a file holds compiled code, as opposed to notes beside it."""
        return bool(self.compiled and self.compiled.search(path))


VLLM = Family(
    "vllm",
    ("VLLM_CACHE_ROOT",),
    # assets: downloaded config files, found again by URL. outlines: unbounded, and unsafe with hostile users (vLLM's own comment).
    exclude=re.compile(r"^(assets|outlines|dummy_cache|xla_cache)/"),
    compiled=re.compile(
        r"^torch_compile_cache/.*/(rank_\d+_\d+/|inductor_cache/)(?!.*(cache_key_factors\.json|computation_graph\.py|transformed_code\.py)$)"
        r"|^deep_gemm/"
    ),
)
INDUCTOR = Family("inductor", ("TORCHINDUCTOR_CACHE_DIR",))
INDUCTOR_HEADERS = Family("inductor_headers", (), compiled=re.compile(r"\.gch$"))  # no variable moves them: see temp_links.py
TRITON = Family("triton", ("TRITON_CACHE_DIR",))

FAMILIES: Mapping[str, Family] = {family.name: family for family in (VLLM, INDUCTOR, INDUCTOR_HEADERS, TRITON)}
"""Every known family by name. A bundle whose members belong to none of them is refused."""


def environment(families: Iterable[Family], root: Path) -> dict[str, str]:
    """The variables that send every family under ``root``, an absolute path."""
    return {variable: str(root / family.name) for family in families for variable in family.variables}
