"""Precompiled headers around one life of the engine: lent before the spawn, taken over when it is ready. Fails open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.cache.families import INDUCTOR_HEADERS
from glowplug.run.start import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start


def lend_headers(start: Start, prepared: Prepared, env: Mapping[str, str]) -> Callable[[], None]:
    """Put the live folder's headers where the engine will look for them.

    Args:
        start: what all steps share.
        prepared: what was done for the engine before.
        env: the engine's environment.

    Returns:
        What to call once the engine is ready, or has ended well: it keeps the headers that the engine has built or read.
    """
    if prepared.live is None or INDUCTOR_HEADERS not in prepared.launch.families:
        return _nothing
    from glowplug.cache.temp_links import lend  # noqa: PLC0415  only where a cache is used

    def safely(step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  fail-open boundary: the engine, or the next one, builds them by itself
            start.console.warn(describe_error(error))

    try:
        lent = lend(prepared.live.path, env)
    except Exception as error:  # noqa: BLE001  the same
        start.console.warn(describe_error(error))
        return _nothing
    if lent is None:
        return _nothing
    if prepared.late is not None:
        prepared.late.then(lambda: safely(lent.give))
    return lambda: safely(lent.take_over)


def _nothing() -> None:
    """There is nothing to take over."""
