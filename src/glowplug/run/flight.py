"""Single flight: of all starts that find nothing for their envelope one compiles, and the others wait for what it publishes.

A ``Lookout`` tells a start what to do next: compile, for the lease is its own; look again, for something was published; or start
cold by itself. A ``Flight`` is the lease of the one that compiles, held from before its engine is spawned until its publication
has ended. A reader never takes the lease; it waits for a writer that holds it.

Nothing here is worth a start: a store without conditional writes, one that refuses or does not answer, a lease that was lost, all
end in an engine that starts cold, after ``--wait`` at the latest.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.lease import Holder, State, Watch, take
from glowplug.errors import BadManifest, GlowplugError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.lease import Lease, Seen
    from glowplug.cache.repository import Pointer, Repository
    from glowplug.timeline.report import PublishReport

_PAUSES_S = (0.5, 1.0)  # between two looks, by chance, so that a fleet does not ask in step
_TRIES = 3  # looks that may fail one after the other
_NEXT_WRITER_S = 3.0  # for so long a reader waits for another writer to take over from one that is gone
_ENDS = {"published": State.PUBLISHED, "exists": State.PUBLISHED, "nothing new": State.PUBLISHED, "cancelled": State.ABANDONED}
_STOPPED = frozenset({0, 129, 130, 143})  # exit codes of an engine that was asked to end


def not_waited_for(name: str, limit: str) -> str:
    """Why a start goes cold whose wait is over, as a clause."""
    return f"{name} compiles the same, and is not waited for any longer ({limit})"


@dataclass(frozen=True, slots=True)
class Flight:
    """The lease of a start that compiles for others.

    Attributes:
        lease: renewed in the background.
    """

    lease: Lease

    def finish(self, published: PublishReport, *, exit_code: int | None) -> None:
        """Tell those who wait how it ended. Blocks for at most 2 s; the first call counts.

        Args:
            published: how the publication ended.
            exit_code: the command's, if it has ended before its cache was complete.
        """
        state = _ENDS.get(published.state, State.FAILED)
        if state is State.FAILED and published.state == "skipped" and exit_code in _STOPPED:
            state = State.ABANDONED  # it was stopped before it was done, so the next one may succeed
        self.lease.finish(state)

    def abandon(self) -> None:
        """Let somebody else compile, unless it has been told already how it ended."""
        self.lease.finish(State.ABANDONED)


@dataclass
class Lookout:
    """What a start that found nothing is to do. For one thread.

    Attributes:
        repository: where generations appear.
        envelope_digest: of this start.
        holder: this start, if it may take the lease; None for a reader.
        dead: id of a holder that is known to be dead; empty for none.
        limit: how long it waits, and for what option, for messages.
        stop: set by another thread to end the wait.
        on_wait: told once, with the holder's name, when it begins to wait.
    """

    repository: Repository
    envelope_digest: str
    holder: Holder | None
    dead: str
    limit: str
    stop: threading.Event
    on_wait: Callable[[str], None]
    name: str = ""
    """Whom it has waited for last; empty if for nobody."""
    watch: Watch = field(init=False)
    _free_s: float = 0.0

    def __post_init__(self) -> None:
        self.watch = Watch(self.repository.store, self.envelope_digest, dead=self.dead)

    def turn(self, known: Pointer | None, deadline: Deadline) -> Lease | Pointer | str:
        """Blocks until there is something to do, for as long as the deadline allows and a few requests more.

        Args:
            known: what ``latest`` said when nothing of use was found.
            deadline: of the wait.

        Returns:
            The lease: compile. A pointer that is not the known one: look again. Or why to start cold by itself, as a clause;
            empty where nobody compiles.

        Raises:
            GlowplugError: the first look at the lease failed, or the store can't lease.
        """
        failed = 0
        while not self.stop.is_set():
            try:
                answer = self._look(known)
            except GlowplugError as error:
                failed += 1
                if not self.name:
                    raise
                answer = f"the store no longer tells what {self.name} does: {error.line()}" if failed >= _TRIES else None
            else:
                failed = 0
            if answer is not None:
                return answer
            if not deadline.remaining_s:
                return not_waited_for(self.name or "another start", self.limit)
            self.stop.wait(min(random.uniform(*_PAUSES_S), deadline.remaining_s))
        return ""

    def _look(self, known: Pointer | None) -> Lease | Pointer | str | None:
        """What there is to do now; None to wait."""
        seen = self.watch.look()  # before the pointer: whoever has given the lease back as published has moved that
        pointer = self._pointer()
        if pointer is not None and pointer != known:
            return pointer
        if not self.watch.free:
            self._wait_for(seen)
            return None
        if self.name and seen is not None and seen.holder.state is State.FAILED:  # and not in an earlier flight
            return f"{self.name} has compiled the same, and published nothing"
        if self.holder is not None:
            return take(self.repository.store, self.envelope_digest, self.holder, over=seen)
        now_s = time.monotonic()
        self._free_s = self._free_s or now_s
        if self.name and now_s - self._free_s < _NEXT_WRITER_S:
            return None
        return f"{self.name} compiles the same no longer" if self.name else ""

    def _pointer(self) -> Pointer | None:
        try:
            return self.repository.latest(self.envelope_digest)
        except BadManifest:
            return None  # it points at nothing, as if there were none

    def _wait_for(self, seen: Seen | None) -> None:
        begun = not self.name
        self._free_s = 0.0
        if seen is not None:
            self.name = seen.holder.name
        if begun:
            self.on_wait(self.name)
