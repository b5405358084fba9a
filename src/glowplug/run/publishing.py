"""After the start: whether its cache is worth publishing, and the publication itself, in the background.

It runs at low priority beside a serving engine, says in one line how it ended, and never raises: a failed publication costs the
next cold start a compile, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from glowplug.cache.capture import capture
from glowplug.cache.keyring import config_home, load_publishing
from glowplug.cache.secrets import SecretScan
from glowplug.cache.tree import scan
from glowplug.errors import DeadlineExceeded, GlowplugError
from glowplug.timeline.report import PublishReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from glowplug.cache.deadline import Deadline
    from glowplug.cache.families import Family
    from glowplug.run.console import Console
    from glowplug.run.options import RunOptions
    from glowplug.run.restoring import Prepared
    from glowplug.timeline.report import StartReport

_NICE = 10
_NOTHING_NEW = "nothing new was compiled"


def reason_to_skip(prepared: Prepared, report: StartReport, options: RunOptions) -> str:
    """Why this start's cache is not published; empty if it is."""
    if not options.publish:
        return "publishing is turned off (--no-publish)"
    if prepared.live is None or prepared.repository is None or not prepared.search.may_publish:
        return report.reason
    if report.outcome == "unused":
        return "the engine made no use of what was restored, so another copy would not help"
    if report.outcome == "hit" and prepared.search.restored is not None:
        return _NOTHING_NEW
    if _is_empty(prepared.live.path, prepared.launch.families):
        return f"nothing was compiled into {prepared.live.path}"
    return prepared.identity.reason if prepared.identity is not None else ""


def _is_empty(root: Path, families: Iterable[Family]) -> bool:
    try:
        return not scan(root, families)
    except OSError:
        return False  # capture names what can't be read


def publish(
    prepared: Prepared, report: StartReport, options: RunOptions, env: Mapping[str, str], console: Console, *, deadline: Deadline
) -> PublishReport:
    """Capture the live folder and make it the newest generation. Blocks; call it from a thread of its own.

    Args:
        prepared: what was known when the engine was spawned.
        report: the start's report.
        options: of this run.
        env: the environment, for keys and for the secrets that must not be published.
        console: for what the user should know.
        deadline: bounds the publication; another thread may cancel it.
    """
    skip = reason_to_skip(prepared, report, options)
    if skip:
        return PublishReport("nothing new") if skip == _NOTHING_NEW else PublishReport("skipped", skip)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # this thread alone, on Linux
    begun = time.monotonic()
    try:
        return _publish(prepared, report, options, env, console, deadline, begun)
    except DeadlineExceeded as error:
        return PublishReport(
            "cancelled" if "called off" in error.message else "failed", error.line(), seconds=time.monotonic() - begun
        )
    except GlowplugError as error:
        return PublishReport("failed", error.line(), seconds=time.monotonic() - begun)


def _publish(
    prepared: Prepared,
    report: StartReport,
    options: RunOptions,
    env: Mapping[str, str],
    console: Console,
    deadline: Deadline,
    begun: float,
) -> PublishReport:
    assert prepared.live is not None and prepared.repository is not None and prepared.envelope is not None  # noqa: S101, PT018
    publishing = load_publishing(env, key=options.signing_key, keys=options.trusted_keys, home=config_home(env))
    if publishing.signer is None:
        return PublishReport("skipped", publishing.reason)
    if publishing.created:
        console.note(
            f"made a signing key for you, {publishing.signer.keyid[:12]}, which this user's starts trust (glowplug keys show)"
        )
    if publishing.reason:
        console.note(publishing.reason)
    captured = capture(
        prepared.repository,
        prepared.envelope,
        prepared.live.path,
        prepared.launch.families,
        publishing.signer,
        replaces=prepared.search.pointer,
        cold_start_s=_cold_start_s(prepared, report),
        ranks=prepared.launch.ranks,
        settle_s=options.settle_s if report.exit_code is None else 0.0,  # what has ended writes no more
        scan_secrets=SecretScan(env),
        deadline=deadline,
    )
    return PublishReport(
        "published" if captured.published else "exists",
        "" if captured.published else "another start published first",
        generation=captured.manifest.digest,
        files=len(captured.manifest.files),
        bytes=captured.manifest.size_bytes,
        pack_bytes=captured.manifest.pack.size_bytes,
        seconds=time.monotonic() - begun,
    )


def _cold_start_s(prepared: Prepared, report: StartReport) -> float | None:
    """What a start without a cache costs: this one, if it was one; else what the restored generation says."""
    if prepared.search.manifest is not None:
        return prepared.search.manifest.cold_start_s
    return None if prepared.before else report.wall_s
