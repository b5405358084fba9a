"""The engine's Python and packages as components of the envelope, for every engine that is Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from glowplug.engines.packages import build, installed, package_folder, relevant, torch_build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.cache.envelope import Json
    from glowplug.engines.interpreter import Interpreter
    from glowplug.engines.packages import Distribution


@dataclass(frozen=True)
class Software:
    """What is installed for one interpreter. Reads when asked, and only once."""

    interpreter: Interpreter

    @cached_property
    def distributions(self) -> Mapping[str, Distribution]:
        """Every installed distribution by its normalised name."""
        return installed(self.interpreter.sys_path)

    def folder(self, package: str) -> str | None:
        """Where a top-level package lies."""
        return package_folder(self.interpreter.sys_path, package)

    def version(self, name: str) -> str | None:
        """A distribution's version; None if it isn't installed."""
        distribution = self.distributions.get(name)
        return distribution.version if distribution else None

    def packages_component(self) -> dict[str, Json]:
        """The envelope's ``packages`` group: versions by name, and ``builds`` for those whose own files end up in cache keys."""
        torch = self.folder("torch")
        builds: dict[str, Json] = {}
        if details := torch_build(torch) | build(self.distributions.get("torch"), torch):
            builds["torch"] = details
        if details := build(self.distributions.get("triton"), self.folder("triton")):
            builds["triton"] = details
        versions: dict[str, Json] = dict(relevant(self.distributions))
        return versions | ({"builds": builds} if builds else {})
