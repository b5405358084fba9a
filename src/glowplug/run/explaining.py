"""Two lines on a miss that somebody may not have meant: what the nearest cache in the store differs in, and what to do about it.

After the spawn, in a thread of its own: it lists the store and reads up to 200 envelopes. Bounded by a deadline; ended with the
wrapper; silent where there is nothing near, where the store may not be listed, and where anything else goes wrong, since a start
without an explanation is a start.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.threads import begin

if TYPE_CHECKING:
    from glowplug.cache.envelope import Envelope
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.store.base import Store

_LOOK_S = 20.0


def explain_in_background(start: Start, prepared: Prepared) -> None:
    """Begin to look for a near cache, if this start has missed and nothing of its own is on the way. Returns at once."""
    search, envelope, repository = prepared.search, prepared.envelope, prepared.repository
    if search.lookup.state != "none" or search.pointer is not None or prepared.late is not None:
        return  # there is a cache
    if search.timed_out or not search.may_publish:
        return  # the store did not answer, or what is compiled will be no neighbour's
    if envelope is None or repository is None:
        return
    engine = prepared.launch.engine.name

    def look() -> None:
        with contextlib.suppress(Exception):  # fail open: nothing hangs on it
            _explain(start, repository.store, envelope, engine)

    begin(threading.Thread(target=look, name="glowplug-explain", daemon=True))


def _explain(start: Start, store: Store, envelope: Envelope, engine: str) -> None:
    from glowplug.cache.explain.kinds import LIKELY_ACCIDENT  # noqa: PLC0415  not while the engine waits to be spawned
    from glowplug.cache.explain.neighbours import neighbours  # noqa: PLC0415  the same
    from glowplug.cache.explain.text import two_lines  # noqa: PLC0415  the same
    from glowplug.engines.knowledge import known_causes  # noqa: PLC0415  the same

    deadline = Deadline(_LOOK_S, step="explain")
    for nearest in neighbours(store, envelope, deadline=deadline, known=known_causes(engine), limit=1):
        if not nearest.is_near:
            return
        likely = nearest.causes[0].likelihood >= LIKELY_ACCIDENT
        for line in two_lines(nearest.causes):
            (start.console.warn if likely else start.console.note)(line)
