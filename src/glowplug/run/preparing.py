"""Before the spawn: take the live folder, and put into it what the store has. Bounded, and never in the engine's way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.cache.keyring import load_signer
from glowplug.errors import UsageError
from glowplug.run import process
from glowplug.run.identity import identity_of
from glowplug.run.restoring import Prepared, Search, claim_live, describe, look_up_and_restore, note_files, store_for, trust_for
from glowplug.run.start import describe_error
from glowplug.threads import begin, none_left
from glowplug.timeline.outcome import Lookup

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.run.start import Start

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Preparing:
    """The steps before the engine is spawned."""

    start: Start

    def prepare(self, prepared: Prepared) -> Prepared:
        """Everything before the spawn. Usage errors are raised; all else fails open."""
        if not self.start.options.cache or not prepared.launch.families:
            return prepared
        try:
            return self._restore(prepared)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            reason = describe_error(error)
            self.start.console.warn(f"cold start: {reason}")
            return replace(prepared, search=Search(Lookup("off", reason), may_publish=False))

    def _restore(self, prepared: Prepared) -> Prepared:
        """Take the live folder, and put into it what the store has."""
        envelope, base = describe(prepared.launch, self.start.options, self.start.env)
        identity = identity_of(self.start.options, self.start.env)
        trust = trust_for(self.start.options, self.start.env)
        store = store_for(self.start.options, self.start.env)
        begun_s = self.start.clock.now_s()
        self.start.steps.note("envelope", 0.0, begun_s)
        prepared = claim_live(replace(prepared, envelope=envelope, store_url=store.url, identity=identity), base)
        if prepared.live is not None:
            writer = load_signer(self.start.env, key=self.start.options.signing_key) is not None
            prepared = self._restore_in_time(
                prepared,
                lambda deadline: look_up_and_restore(
                    prepared, store, trust, deadline=deadline, options=self.start.options, writer=writer
                ),
            )
            prepared = note_files(prepared)
        self.start.steps.note("restore", begun_s, self.start.clock.now_s())
        if self.start.options.store is None:
            self.start.console.note(f"no --store: using your own, {store.url}")
        search = prepared.search
        if search.lookup.state == "none" and search.pointer is None and search.may_publish:  # the first start of its kind
            self.start.console.note(f"cold start: {search.lookup.reason}")
        elif search.lookup.state != "restored":
            self.start.console.warn(f"cold start: {search.lookup.reason}")
        return prepared

    def _restore_in_time(self, prepared: Prepared, work: Callable[[Deadline], Prepared]) -> Prepared:
        """Do the work in a thread, and wait for it no longer than the deadline, nor past a signal that ends the start."""
        deadline = Deadline(self.start.options.restore_deadline_s, step="restore")
        results: list[Prepared] = []

        def run() -> None:
            try:
                results.append(work(deadline))
            except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
                results.append(replace(prepared, search=Search(Lookup("off", describe_error(error)), may_publish=False)))

        thread = threading.Thread(target=run, name="glowplug-restore", daemon=True)
        if not begin(thread):
            return replace(prepared, search=Search(Lookup("off", none_left().line()), may_publish=False))
        pause_s = 0.005
        while thread.is_alive() and deadline.remaining_s and process.pending_stop() is None:
            thread.join(pause_s)
            pause_s = min(pause_s * 2, 0.1)
        limit = f"{self.start.options.restore_deadline_s:g} s"
        deadline.cancel(f"the engine starts after {limit} at the latest")
        thread.join(_POLL_S)  # a commit that was under way has ended by now
        if results:
            return results[0]
        reason = f"restore took longer than {limit} (raise --restore-deadline, or look at the store)"
        return replace(prepared, search=Search(Lookup("none", reason), may_publish=False))
