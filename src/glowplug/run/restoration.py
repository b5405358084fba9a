"""Look-up, wait and restore in one thread, and the moment from which the engine may be spawned beside it.

An engine imports for some seconds before it looks into its compile cache (``Launch.imports_s``). So it is spawned as soon as what
is left of the restore surely fits into these seconds: at once for a small generation, near the end of the fetch for a large one,
when its generation appears for a start that waits for another's, and at the deadline in any case. A restore that turns out to be
later than that is called off, or finds that the engine has begun to compile and leaves it alone. Who has waited for another's in
vain looks on until its engine compiles.

One ``Restoration`` belongs to one start. The main thread calls ``begin``; from then on ``settle`` may be called from any thread.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.cache.lease import Holder, Lease
from glowplug.cache.repository import Pointer
from glowplug.cache.tree import scan
from glowplug.engines.base import HttpReadiness
from glowplug.errors import DeadlineExceeded, GlowplugError, UsageError
from glowplug.run import process
from glowplug.run.flight import Flight, Lookout, not_waited_for
from glowplug.run.restoring import Search, look_up_and_restore, note_files, note_restored, timed_out, trust_for
from glowplug.run.start import describe_error
from glowplug.threads import begin, none_left
from glowplug.timeline.outcome import Lookup
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.cache.keyring import NamedSigner
    from glowplug.cache.manifest import Manifest
    from glowplug.cache.trust import Trust
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.timeline.phases import Span

# What a restore surely does in a second, unpacked bytes: a twentieth of what two cores do from a local server, and what S3 gives to
# one connection. And what it costs besides.
_BYTES_PER_S = 50 * MIB
_OVERHEAD_S = 0.5
_LEASE_S = 10.0  # an answer about the lease is not worth more; some servers let those who race for an object wait for 5 s
_LOOKS = 3  # generations that turn out to be of no use before the wait is given up
_POLL_S = 0.1
_GIVE_UP_S = 1.0


class Restoration:
    """What the store has for one start, on its way into the live folder.

    Args:
        start: what all steps share.
        prepared: with envelope, live folder, repository and identity.
        trust: whose signatures count.
        signer: the signing key that was named for this process, if any.
    """

    def __init__(self, start: Start, prepared: Prepared, trust: Trust, *, signer: NamedSigner | None) -> None:
        self._start = start
        self._prepared = prepared
        self._trust = trust
        self._signer = signer
        self._imports_s = prepared.launch.imports_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._may_spawn = threading.Event()
        self._done = threading.Event()
        self._deadline = Deadline(start.options.restore_deadline_s, step="restore")
        self._limit_s: float = start.options.restore_deadline_s
        self._result: Prepared | None = None
        self._afterwards: list[Callable[[], None]] = []
        self._spans: list[tuple[str, Span]] = []
        self._mark_s = start.clock.now_s()
        self._step = "restore"
        self._limit = f"--wait {start.options.wait_s:g}s"
        self._left_bytes = 0
        self._settled = False
        self._noted = False

    # --- for the main thread

    def begin(self) -> Prepared:
        """Begin, and block until the engine may be spawned, or a signal asks the start to end."""
        thread = threading.Thread(target=self._run, name="glowplug-restore", daemon=True)
        if not begin(thread):
            return replace(self._prepared, search=Search(Lookup("off", none_left().line()), may_publish=False))
        pause_s = 0.005
        while not self._may_spawn.wait(pause_s) and self._deadline.remaining_s and process.pending_stop() is None:
            pause_s = min(pause_s * 2, 0.1)
        if self._may_spawn.is_set() and not self._done.is_set():
            return replace(self._prepared, late=self)
        self._call_off(f"the engine starts after {self._limit_s:g} s at the latest")
        self._done.wait(_POLL_S)  # a commit that was under way has ended by now
        settled = self.settle(self._prepared)
        return settled if self._done.is_set() else note_files(settled)

    def settle(self, prepared: Prepared) -> Prepared:
        """The same with all that is known now. What is still under way is called off: the engine is ready, or has ended."""
        if not self._done.is_set():
            self._call_off("the engine was ready before it was done")
            self._done.wait(_GIVE_UP_S)
        self._note_phases()
        with self._lock:
            self._settled = True
            result = self._result or self._late(prepared)
        return replace(prepared, late=None, search=result.search, before=result.before, flight=result.flight)

    def then(self, step: Callable[[], None]) -> None:
        """Do something in the restoring thread once the restore has ended; at once, and here, if it has. Must not raise."""
        with self._lock:
            if not self._done.is_set():
                self._afterwards.append(step)
                return
        step()

    # --- in the thread

    def _run(self) -> None:
        try:
            result = self._bring()
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            result = replace(self._prepared, search=Search(Lookup("off", describe_error(error)), may_publish=False))
        late = self._may_spawn.is_set()
        result = note_restored(result, self._prepared.before) if late else note_files(result)
        with self._lock:
            too_late, self._result = self._settled, result
            self._done.set()
        self._note_phases()
        if too_late and result.flight is not None:
            result.flight.abandon()
        if late and result.search.lookup.state != "restored" and not self._stop.is_set():
            self._start.console.warn(f"cold start: {result.search.lookup.reason}")
        self._may_spawn.set()
        for step in self._afterwards:
            step()

    def _bring(self) -> Prepared:
        """Look up and restore; on a miss take part in single flight, and restore what another start has published."""
        found = self._look_up()
        if self._may_spawn.is_set() or not _is_miss(found.search):
            return found
        with self._lock:
            self._result = found  # whatever becomes of the lease: this start can go on with that
        lookout = self._lookout()
        wait = Deadline(self._start.options.wait_s, step="wait")
        lease_s = min(_LEASE_S, self._start.options.restore_deadline_s)
        self._bound(Deadline(lease_s, step="lease"), lease_s)
        for _ in range(_LOOKS):
            try:
                turn = lookout.turn(found.search.pointer, wait)
            except GlowplugError as error:
                if found.identity is not None and found.identity.is_writer:
                    self._start.console.note(f"no single flight, so others may compile the same: {error.line()}")
                break
            self._ended()
            if isinstance(turn, Lease):
                return self._fly(found, turn)
            if isinstance(turn, str):
                lookup = replace(found.search.lookup, reason=turn or found.search.lookup.reason)
                found = replace(found, search=replace(found.search, lookup=lookup))
                return self._look_on(found, lookout) if turn and not wait.remaining_s else found
            found = self._look_again()
            if not _is_miss(found.search):
                break
        return found

    def _look_on(self, found: Prepared, lookout: Lookout) -> Prepared:
        """The wait is over: let the engine begin, and look on until it compiles. What appears meanwhile is restored beside it."""
        if not self._imports_s:
            return found
        self._prepared = note_files(self._prepared)
        with self._lock:
            self._result, self._step = found, ""
        self._may_spawn.set()
        lookout.holder = None
        with contextlib.suppress(GlowplugError):  # the engine compiles, or the store does not answer
            while self.in_use():
                wait = Deadline(self._imports_s, step="wait")
                turn = lookout.turn(found.search.pointer, wait)
                self._ended()
                if isinstance(turn, Pointer):
                    again = self._look_again()
                    return again if again.search.restored is not None else found
                if wait.remaining_s or self._stop.is_set():  # nobody compiles it any more, or the engine is ready
                    break
        return found

    def _look_up(self) -> Prepared:
        found = look_up_and_restore(
            self._prepared,
            self._trust,
            deadline=self._deadline,
            options=self._start.options,
            writer=self._signer is not None,
            pace=self,
        )
        self._ended()
        return found

    def _look_again(self) -> Prepared:
        """Something has been published meanwhile: restore that."""
        limit_s = self._start.options.restore_deadline_s
        self._bound(Deadline(limit_s, step="restore"), limit_s)
        self._step = "restore"
        with contextlib.suppress(UsageError):  # a user's first publication makes the key that it is signed with
            self._trust = trust_for(self._start.options, self._start.env, signer=self._signer)
        return self._look_up()

    def _lookout(self) -> Lookout:
        prepared = self._prepared
        assert prepared.repository is not None and prepared.envelope is not None and prepared.live is not None  # noqa: S101, PT018
        identity = prepared.identity
        return Lookout(
            prepared.repository,
            prepared.envelope.digest,
            Holder(node=identity.node) if identity is not None and identity.is_writer else None,
            dead=prepared.live.note,
            limit=self._limit,
            stop=self._stop,
            on_wait=self._waits,
        )

    def _waits(self, name: str) -> None:
        """Another start compiles: from now on the wait's own bound counts."""
        wait_s = self._start.options.wait_s
        with self._lock:
            if self._result is not None:  # which counts if the store falls silent in the middle of a look
                lookup = replace(self._result.search.lookup, reason=not_waited_for(name, self._limit))
                self._result = replace(self._result, search=replace(self._result.search, lookup=lookup))
        if wait_s:
            self._start.console.note(f"{name} compiles the same: waiting for it, at most {wait_s:g} s (--wait)")
        self._bound(Deadline(wait_s + _GIVE_UP_S, step="wait"), wait_s)
        self._step = "wait"

    def _fly(self, found: Prepared, lease: Lease) -> Prepared:
        """Compile for all the others, if the lease can be kept up."""
        options = self._start.options
        if found.live is not None:
            found.live.leave_note(lease.holder.id)
        if self._stop.is_set() or not lease.keep(at_most_s=options.ready_timeout_s + options.publish_deadline_s):
            Flight(lease).abandon()
            return found
        return replace(found, flight=Flight(lease))

    # --- how the restore goes on, told by ``look_up_and_restore``

    def found(self, manifest: Manifest) -> None:
        """This generation will be restored: spawn the engine, if that is sure to be done in time."""
        self._left_bytes = manifest.size_bytes
        if self._imports_s and not self._may_spawn.is_set():
            self._prepared = note_files(self._prepared)  # the engine may write from now on
        self.progress(0)

    def progress(self, count: int) -> None:
        """So many bytes more have been unpacked."""
        with self._lock:
            self._left_bytes -= count
            if self._may_spawn.is_set() or self._left_bytes / _BYTES_PER_S + _OVERHEAD_S > self._imports_s:
                return
            self._may_spawn.set()

    def in_use(self) -> bool:
        """Whether the engine may be using the live folder. Raises DeadlineExceeded if it compiles already."""
        if not self._may_spawn.is_set():
            return False
        live = self._prepared.live
        files = scan(live.path, self._prepared.launch.families) if live is not None else []
        if any(file.compiled and file.path not in self._prepared.before for file in files):
            raise DeadlineExceeded("the engine began to compile before the restore was done", object="restore")
        return True

    # --- time

    def _bound(self, deadline: Deadline, limit_s: float) -> None:
        """Another step begins, with a bound of its own."""
        self._limit_s = limit_s
        self._deadline = deadline
        if self._stop.is_set():
            deadline.cancel("the start is over")

    def _call_off(self, reason: str) -> None:
        self._stop.set()
        self._deadline.cancel(reason)

    def _late(self, prepared: Prepared) -> Prepared:
        reason = f"restore took longer than {self._limit_s:g} s (raise --restore-deadline, or look at the store)"
        serves = isinstance(prepared.launch.readiness, HttpReadiness)
        return replace(prepared, search=timed_out(reason, serves=serves))

    def _ended(self) -> None:
        """The step has ended now; it began where the last one ended."""
        with self._lock:
            now_s = self._start.clock.now_s()
            if self._spans and self._spans[-1][0] == self._step:
                self._spans[-1] = (self._step, (self._spans[-1][1][0], now_s))
            elif self._step:
                self._spans.append((self._step, (self._mark_s, now_s)))
            self._mark_s = now_s

    def _note_phases(self) -> None:
        """Once: what has been done, and the step that was under way when nobody waited any longer."""
        if self._noted:
            return
        self._noted = True
        if not self._done.is_set():
            self._ended()
        for name, (start_s, end_s) in self._spans:
            self._start.steps.note(name, start_s, end_s)


def _is_miss(search: Search) -> bool:
    """Whether there is nothing of use in the store, and a publication would change that."""
    return search.lookup.state in {"none", "refused"} and search.may_publish and not search.timed_out
