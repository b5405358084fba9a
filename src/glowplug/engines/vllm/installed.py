"""vLLM as it is installed for one interpreter: its distribution, its folder, its version."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.engines.packages import Distribution
    from glowplug.engines.software import Software

_VERSION = re.compile(r"^__version__\s*=(?:\s*version\s*=)?\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class InstalledVllm:
    """vLLM as it is installed."""

    distribution: Distribution | None
    folder: str | None
    version: str | None


def installed_vllm(software: Software) -> InstalledVllm:
    """What there is of vLLM; all None where there is nothing."""
    folder = software.folder("vllm")
    named = [software.distributions[name] for name in sorted(software.distributions) if name == "vllm" or name.startswith("vllm-")]
    # `vllm` may be a mere alias of the wheel that brings the package, and plug-ins are called vllm-something too.
    distribution = next((candidate for candidate in named if candidate.provides("vllm")), software.distributions.get("vllm"))
    if distribution is not None:
        return InstalledVllm(distribution, folder, distribution.version)
    return InstalledVllm(None, folder, _source_version(folder))


def version_tuple(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` is (2, 13, 0), ``0.32.0rc1`` is (0, 32)."""
    numbers = []
    for part in version.split("+", 1)[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _source_version(folder: str | None) -> str | None:
    """The version that a source tree without metadata has written down."""
    for name in ("_version.py", "version.py"):
        try:
            with open(os.path.join(folder or "", name), encoding="utf-8", errors="replace") as file:
                match = _VERSION.search(file.read(64 * 1024))
        except OSError:
            continue
        if match:
            return match[1]
    return None
