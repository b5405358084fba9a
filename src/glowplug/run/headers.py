"""Precompiled headers around one life of the engine: lent before the spawn, taken over when it is ready. Fails open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.families import INDUCTOR_HEADERS
from glowplug.run.start import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.cache.temp_links import Lent
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start


@dataclass
class Headers:
    """The headers that one life of the engine may use. Nothing of it raises.

    Args:
        start: what all steps share.
    """

    start: Start
    _lent: Lent | None = None

    def lend(self, prepared: Prepared, env: Mapping[str, str]) -> None:
        """Put the live folder's headers where the engine will look for them, now and at the end of a restore that is late.

        Args:
            prepared: what was done for the engine before.
            env: the engine's environment.
        """
        if prepared.live is None or INDUCTOR_HEADERS not in prepared.launch.families or not _may_have_torch(prepared):
            return
        from glowplug.cache.temp_links import lend  # noqa: PLC0415  only where a cache is used

        root = prepared.live.path

        def begin() -> None:
            self._lent = lend(root, env)

        self._safely(begin)
        if self._lent is not None and prepared.late is not None:
            give = self._lent.give
            prepared.late.then(lambda: self._safely(give))

    def keep(self) -> None:
        """The engine is ready, or has ended well: keep what it has built or read."""
        if self._lent is not None:
            self._safely(self._lent.take_over)

    def take_back(self) -> None:
        """The engine died, perhaps of what was lent."""
        if self._lent is not None:
            self._safely(self._lent.take_back)

    def _safely(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  fail-open boundary: the engine, or the next one, builds them by itself
            self.start.console.warn(describe_error(error))


def _may_have_torch(prepared: Prepared) -> bool:
    """Whether headers that appear can be this engine's own, and not those of another process in the same temporary folder."""
    packages = prepared.launch.components.get("packages")
    return not isinstance(packages, dict) or "torch" in packages
