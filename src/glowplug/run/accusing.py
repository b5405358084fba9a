"""A start's word against a generation: noted on this node at once, said in the store once the engine lives without it.

What counts as evidence:

- **died**: a start with it died, and the same command without it became ready. A command that dies either way proves nothing.
- **unusable**: the engine said that it could not load what was restored, and used none of it.
- **recompiled**: by its own log the engine compiled everything again, and its records name no difference to the restored files'
  key. Where they do, the fault is this pod's own: its key differs, and the generation may be good.
- **integrity**: a signature or a digest was wrong when it was restored.

A writer then looks whether the reports in the store are enough for a verdict. All of this happens after the engine is ready,
bounded, and fails open.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.engines.base import ExitReadiness
from glowplug.errors import GlowplugError
from glowplug.run.start import describe_error
from glowplug.threads import begin
from glowplug.timeline.report import Event

if TYPE_CHECKING:
    from glowplug.cache.quarantine.testimony import Kind, Testimony
    from glowplug.engines.base import EngineLog
    from glowplug.run.attempt import Ended
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.timeline.report import StartReport

_SERVING_S = 60.0  # beside a serving engine nobody waits
_ENDED_S = 10.0  # a command has ended, and whoever called it waits


@dataclass
class Accuser:
    """Speaks for this start.

    Args:
        start: what all steps share.
    """

    start: Start
    _died: Testimony | None = None
    _where: Prepared | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def engine_died(self, prepared: Prepared, ended: Ended, reason: str) -> None:
        """An engine died with a restored generation, and will be started again without it. Notes that on this node."""
        self._where = prepared
        self._died = self._testimony(prepared, "died", reason, ended)
        if self._died is not None:
            self._note(prepared, self._died)

    def withdraw(self) -> None:
        """It died without the generation as well: nothing is said, and the note is gone."""
        from glowplug.cache.quarantine import drop_note  # noqa: PLC0415  not while the engine waits to be spawned

        died, self._died = self._died, None
        if died is not None and self._where is not None and self._where.live is not None:
            drop_note(self._where.live.path.parent, died.generation)

    def speak(self, prepared: Prepared, report: StartReport, log: EngineLog) -> None:
        """The engine is ready, or the command has ended well: report what speaks against a generation, and judge. Bounded."""
        if prepared.live is None or prepared.repository is None or prepared.envelope is None:
            return
        if self._died is None and prepared.search.lookup.state not in {"restored", "refused"}:
            return  # there is no generation to speak of, or the store does not answer, and the command's caller waits
        exits = isinstance(prepared.launch.readiness, ExitReadiness)
        deadline = Deadline(_ENDED_S if exits else _SERVING_S, step="quarantine")

        def run() -> None:
            try:
                self._speak(prepared, report, log, deadline)
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine serves on
                self.start.console.warn(f"what is bad could not be reported: {describe_error(error)}")

        thread = threading.Thread(target=run, name="glowplug-quarantine", daemon=True)
        if begin(thread):
            thread.join(deadline.remaining_s)
            deadline.cancel("it took too long")

    def _speak(self, prepared: Prepared, report: StartReport, log: EngineLog, deadline: Deadline) -> None:
        from glowplug.cache.quarantine.testimony import report as send  # noqa: PLC0415  after the engine is ready
        from glowplug.errors import RemoteError  # noqa: PLC0415  the same

        testimony = self._died or self._found(prepared, report, log)
        assert prepared.repository is not None  # noqa: S101  the caller has looked
        if testimony is not None:
            if testimony.kind in {"unusable", "recompiled"}:
                self._note(prepared, testimony)
            self._event("evidence", testimony.generation, f"{testimony.kind}: {testimony.reason}")
            what, next_ = _said(testimony)
            try:
                send(prepared.repository.store, testimony)
            except RemoteError as error:
                self.start.console.warn(f"{what}, but that could not be reported to others: {error.line()}")
            else:
                self.start.console.warn(f"{what} (reported; {next_})")
        if prepared.identity is not None and prepared.identity.is_writer:
            self._judge(prepared, testimony, deadline)

    def _judge(self, prepared: Prepared, testimony: Testimony | None, deadline: Deadline) -> None:
        """What a writer does: look at once at what has failed a check here, and at all that nodes have reported."""
        from glowplug.cache.quarantine.judging import judge_all, verify  # noqa: PLC0415  after the engine is ready
        from glowplug.cache.quarantine.verdicts import condemn  # noqa: PLC0415  the same
        from glowplug.run.restoring import trust_for  # noqa: PLC0415  the same

        assert prepared.repository is not None and prepared.envelope is not None  # noqa: S101, PT018  the caller has looked
        trust = trust_for(self.start.options, self.start.env)
        verdicts = []
        if testimony is not None and testimony.kind == "integrity":
            verdict = verify(prepared.repository, testimony.envelope, testimony.generation, trust, deadline=deadline)
            if verdict is not None and condemn(prepared.repository.store, verdict):
                verdicts.append(verdict)
        restored = prepared.search.restored
        sound = {restored.generation} if restored is not None and restored.fetched else set()
        try:
            verdicts += judge_all(prepared.repository, trust, deadline=deadline, envelope=prepared.envelope.digest, sound=sound)
        except GlowplugError as error:
            self.start.console.note(f"nodes' reports could not be judged: {error.line()}")
        for verdict in verdicts:
            self._event("quarantine", verdict.generation, verdict.reason)
            self.start.console.warn(f"generation {verdict.generation[:12]} is in quarantine for all: {verdict.reason}")

    def _found(self, prepared: Prepared, report: StartReport, log: EngineLog) -> Testimony | None:
        """What this start, which is ready, has to say against a generation."""
        search = prepared.search
        if search.broken:
            return self._testimony(prepared, "integrity", search.lookup.reason, generation=search.broken)
        if search.lookup.state != "restored" or report.outcome != "unused" or search.manifest is None or prepared.live is None:
            return None
        evidence = log.evidence()
        if evidence.failed:
            return self._testimony(prepared, "unusable", f"the engine could not load it: {evidence.failed[0]}")
        named = prepared.launch.explain_miss(prepared.live.path, {entry.path for entry in search.manifest.files})
        if evidence.compiled and not named:
            return self._testimony(prepared, "recompiled", "the engine compiled everything again")
        return None

    def _testimony(
        self, prepared: Prepared, kind: Kind, reason: str, ended: Ended | None = None, *, generation: str = ""
    ) -> Testimony | None:
        from glowplug.cache.quarantine.scrub import scrub  # noqa: PLC0415  not while the engine waits to be spawned
        from glowplug.cache.quarantine.testimony import Testimony, now  # noqa: PLC0415  the same
        from glowplug.cache.secrets import SecretScan  # noqa: PLC0415  the same

        generation = generation or prepared.search.lookup.generation
        if not generation or prepared.envelope is None or prepared.identity is None:
            return None
        scan = SecretScan(self.start.env)
        return Testimony(
            envelope=prepared.envelope.digest,
            generation=generation,
            kind=kind,
            node=prepared.identity.node,
            reader=prepared.identity.reader,
            at=now(),
            reason=" ".join(scrub([reason], scan)),
            engine=prepared.launch.engine.name,
            engine_version=prepared.launch.engine.version,
            exit_code=ended.exit_code if ended else None,
            signal=(ended.signal or None) if ended else None,
            seconds=ended.lived_s if ended else None,
            lines=scrub(ended.lines, scan) if ended else (),
        )

    def _note(self, prepared: Prepared, testimony: Testimony) -> None:
        from glowplug.cache.quarantine import put_note  # noqa: PLC0415  not while the engine waits to be spawned

        if prepared.live is None:
            return
        try:
            put_note(prepared.live.path.parent, testimony.generation, testimony.document)
        except GlowplugError as error:
            self.start.console.warn(error.line())

    def _event(self, name: str, generation: str, detail: str) -> None:
        self.start.events.append(Event(name, self.start.clock.now_s(), generation, detail))


def _said(testimony: Testimony) -> tuple[str, str]:
    """What a start says of its testimony: what it knows, and what others will do about it."""
    generation = f"generation {testimony.generation[:12]}"
    if testimony.kind == "integrity":
        return f"{generation} is not what was signed", "a writer looks at it, and puts it into quarantine if that is so"
    why = "the engine lives without it" if testimony.kind == "died" else testimony.reason
    return f"{generation} is not used on this node any more: {why}", "two nodes put it into quarantine for all"
