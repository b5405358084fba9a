"""What a start publishes: its cache once the engine is ready, and what the engine compiles later (``deltas``).

Publications run at low priority beside a serving engine, say in one line how they ended, and never raise: a failed one costs the
next cold start a compile, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.cache.keyring import config_home, load_publishing, load_signer
from glowplug.cache.merge import Doubted, Tainted, Tree, publish_tree
from glowplug.cache.quarantine import noted
from glowplug.cache.secrets import SecretScan
from glowplug.cache.tree import scan
from glowplug.errors import DeadlineExceeded, GlowplugError, UnknownKey
from glowplug.run.restoring import trust_for
from glowplug.timeline.report import PublishReport

if TYPE_CHECKING:
    from glowplug.cache.deadline import Deadline
    from glowplug.cache.merge import Publication
    from glowplug.cache.trust import Signer
    from glowplug.run.restoring import Prepared
    from glowplug.run.start import Start
    from glowplug.timeline.report import StartReport

_NICE = 10
_NOTHING_NEW = "nothing new was compiled"


def reason_to_skip(prepared: Prepared, report: StartReport, *, publish: bool) -> str:
    """Why this start's cache is not published at readiness; empty if it is."""
    if publish and report.outcome == "hit" and prepared.search.restored is not None:
        return _NOTHING_NEW
    never = why_never(prepared, report, publish=publish)
    if never or prepared.live is None:
        return never
    try:
        empty = not scan(prepared.live.path, prepared.launch.families)
    except OSError:
        return ""  # capture names what can't be read
    return f"nothing was compiled into {prepared.live.path}" if empty else ""


def why_never(prepared: Prepared, report: StartReport, *, publish: bool) -> str:
    """Why nothing that this engine compiles is published, now or later; empty if it may be."""
    if not publish:
        return "publishing is turned off (--no-publish)"
    if prepared.live is None or prepared.repository is None or not prepared.search.may_publish:
        return report.reason
    if report.outcome == "unused":
        return "the engine made no use of what was restored, so another copy would not help"
    return prepared.identity.reason if prepared.identity is not None else ""


@dataclass
class Publications:
    """All that one engine publishes, one after the other. For one thread at a time.

    Args:
        start: what all steps share.
        prepared: what was known when the engine was spawned.
        report: the start's report.
    """

    start: Start
    prepared: Prepared
    report: StartReport
    held: frozenset[str] = field(init=False)
    """Paths of the newest generation that this process knows: nothing among them is new."""
    _known: set[str] = field(init=False)

    def __post_init__(self) -> None:
        search = self.prepared.search
        self.held = frozenset(entry.path for entry in search.manifest.files) if search.manifest is not None else frozenset()
        # What was not restored is looked at again: what is bad is displaced, what only this start did not get is joined. But one of
        # which a part is gone looks whole by its manifest, and is displaced.
        self._known = {search.restored.generation} if search.restored is not None else set()
        if search.pointer is not None and search.lookup.state == "none" and not search.timed_out:
            self._known.add(search.pointer.generation)

    def at_ready(self, deadline: Deadline) -> PublishReport:
        """Publish what the start has compiled, unless there is a reason not to. Blocks; call it from a thread of its own.

        Args:
            deadline: bounds the publication; another thread may cancel it.
        """
        skip = reason_to_skip(self.prepared, self.report, publish=self.start.options.publish)
        if skip:
            return PublishReport("nothing new") if skip == _NOTHING_NEW else PublishReport("skipped", skip)
        return self.publish(deadline)

    def publish(self, deadline: Deadline) -> PublishReport:
        """Capture the live folder and make it, with what others have published, the newest generation. Blocks.

        Lowers this thread's priority. ``deadline`` as for ``at_ready``.
        """
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # this thread alone, on Linux
        begun = time.monotonic()
        try:
            return self._publish(deadline, begun)
        except DeadlineExceeded as error:
            return PublishReport(
                "cancelled" if "called off" in error.message else "failed", error.line(), seconds=time.monotonic() - begun
            )
        except (Tainted, Doubted, UnknownKey) as error:
            return PublishReport("skipped", error.line(), seconds=time.monotonic() - begun)
        except GlowplugError as error:
            return PublishReport("failed", error.line(), seconds=time.monotonic() - begun)

    def _publish(self, deadline: Deadline, begun: float) -> PublishReport:
        options, env = self.start.options, self.start.env
        publishing = load_publishing(env, key=options.signing_key, keys=options.trusted_keys, home=config_home(env))
        if publishing.signer is None:
            return PublishReport("skipped", publishing.reason)
        if publishing.created:
            self.start.console.note(
                f"made a signing key for you, {publishing.signer.keyid[:12]}, which this user's starts trust (glowplug keys show)"
            )
        if publishing.reason:
            self.start.console.note(publishing.reason)
        ended = self._publish_tree(publishing.signer, deadline)
        if ended.left_out:
            others = f", and {len(ended.left_out) - 1} more like it" if ended.left_out[1:] else ""
            self.start.console.note(f"not complete, so not published: {ended.left_out[0]}{others}")
        manifest = ended.manifest
        if ended.state != "overtaken":
            self.held = frozenset(entry.path for entry in manifest.files)
        if ended.state == "published":
            self._known.add(manifest.digest)  # what was joined is not in the live folder, and has to be joined again
        published = ended.state in {"published", "joined"}
        return PublishReport(
            "published" if published else "exists",
            "" if published else "another start published first",
            generation=manifest.digest,
            files=len(manifest.files),
            bytes=manifest.size_bytes,
            pack_bytes=manifest.pack.size_bytes,
            seconds=time.monotonic() - begun,
        )

    def _publish_tree(self, signer: Signer, deadline: Deadline) -> Publication:
        prepared, options, env = self.prepared, self.start.options, self.start.env
        assert prepared.live is not None and prepared.repository is not None and prepared.envelope is not None  # noqa: S101, PT018
        restored = prepared.search.restored
        tree = Tree(
            prepared.live.path,
            prepared.launch.families,
            prepared.launch.ranks,
            options.settle_s if self.report.exit_code is None else 0.0,  # what has ended writes no more
            restored.generation if restored is not None else None,
            self._known,
            noted(prepared.live.path.parent),
        )
        return publish_tree(
            prepared.repository,
            prepared.envelope,
            tree,
            signer,
            trust_for(options, env),
            may_displace=load_signer(env, key=options.signing_key) is not None,
            cold_start_s=_cold_start_s(prepared, self.report),
            scan_secrets=SecretScan(env),
            deadline=deadline,
        )


def _cold_start_s(prepared: Prepared, report: StartReport) -> float | None:
    """What a start without a cache costs: this one, if it was one; else what the restored generation says."""
    if prepared.search.manifest is not None:
        return prepared.search.manifest.cold_start_s
    return None if prepared.before else report.wall_s - prepared.lost_s
