"""Before the spawn: take the live folder, and put into it what the store has. Bounded, and never in the engine's way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glowplug.cache.repository import Repository
from glowplug.cache.trust import Trust
from glowplug.errors import UsageError
from glowplug.run import process
from glowplug.run.identity import Role, identity_of
from glowplug.run.nearby import nearby
from glowplug.run.restoration import Restoration
from glowplug.run.restoring import Prepared, Search, claim_live, describe, note_files, store_for, trust_for
from glowplug.run.start import describe_error
from glowplug.timeline.outcome import Lookup

if TYPE_CHECKING:
    from glowplug.run.start import Start


@dataclass(frozen=True, slots=True)
class Preparing:
    """The steps before the engine is spawned."""

    start: Start

    def prepare(self, prepared: Prepared) -> Prepared:
        """Everything before the spawn. Usage errors are raised; all else fails open."""
        if not self.start.options.cache or not prepared.launch.families:
            return prepared
        if prepared.launch.unsure:
            self.start.console.warn(f"cold start: {prepared.launch.unsure}")
            return replace(prepared, search=Search(Lookup("off", prepared.launch.unsure), may_publish=False))
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
        trust, problem = Trust(), ""
        try:
            trust = trust_for(self.start.options, self.start.env, signer=identity.signer)
        except UsageError as error:  # a secret that is not there is the cluster's fault, and no engine's
            problem = error.line()
            identity = replace(identity, role=Role.READER, reason=problem)
        store = nearby(store_for(self.start.options, self.start.env), self.start, trust)
        begun_s = self.start.clock.now_s()
        self.start.steps.note("envelope", 0.0, begun_s)
        prepared = replace(prepared, envelope=envelope, store_url=store.url, repository=Repository(store), identity=identity)
        prepared = claim_live(prepared, base, trust)
        if problem and prepared.live is not None:
            prepared = note_files(replace(prepared, search=Search(Lookup("off", problem), may_publish=False)))
        elif prepared.live is not None:
            prepared = Restoration(self.start, prepared, trust, signer=identity.signer).begin()
        if identity.problem not in {"", problem}:
            self.start.console.warn(f"this start publishes nothing: {identity.problem}")
        if self.start.options.store is None:
            self.start.console.note(f"no --store: using your own, {store.url}")
        if prepared.late is not None or process.pending_stop() is not None:  # the latter ends the start, and needs no reason
            return prepared
        search = prepared.search
        line = f"{'nothing was restored' if prepared.before else 'cold start'}: {search.lookup.reason}"
        if search.lookup.state == "none" and search.pointer is None and not search.timed_out:  # the first start of its kind
            self.start.console.note(line)
        elif search.lookup.state != "restored":
            self.start.console.warn(line)
        return prepared
