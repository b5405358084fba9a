"""How a start is to be supervised: plain values, read from the command line and the environment by ``cli``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.store.keys import is_key
from glowplug.units import parse_bytes

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of ``glowplug run``.

    Attributes:
        store: the store's URL; None for the user's own store in their cache folder.
        cache_dir: where live folders lie; None for ``cache.live.default_base``.
        report: where the start report goes as JSON; None for nowhere.
        restore_deadline_s: after so many seconds without a complete restore the engine starts cold.
        publish_deadline_s: after so many seconds a capture is given up.
        wait_s: for so many seconds a start waits for another that compiles the same; 0 never waits.
        node_store: where packs and manifests are kept for the next start on this node; None for nowhere.
        node_store_bytes: how much is kept there at most.
        publish_interval_s: how often at most a serving engine's later compilations are published; 0 for never.
        settle_s: how long the cache tree must not change before it is captured.
        ready_timeout_s: after so many seconds without readiness nothing is captured any more; the engine is left alone.
        publish: whether a cold start's cache is published.
        restore: whether a published cache is looked for.
        poison_window_s: an engine that dies so soon after a restore, or a server before it is ready, is started once more without
            the cache; 0 never does that.
        metrics: where the start's metrics go, in Prometheus' text format; None for nowhere.
        cache: False leaves the engine's cache settings alone, restores and publishes nothing.
        signing_key: PEM file, folder, or KMS ARN; None for the environment's or the user's own.
        trusted_keys: the same for public keys; empty for the environment's or the user's own.
        engine: an adapter's name; None to recognise it from the command.
        quiet: print warnings only.
        json: print the report as one line of JSON instead of a table.
        weights: whether a remote checkpoint is streamed, and a local one read ahead.
        host_memory: ``auto``, ``full`` or a size: how much of a checkpoint is buffered at once. Empty: as the environment has it.
        max_bandwidth: bytes a second of the fetch; None for no cap.
        weights_deadline_s: after so many seconds without the checkpoint's headers and small files the engine fetches by itself.
        require_seal: start only with weights that somebody trusted has sealed.
        role: ``auto``, ``reader`` or ``writer``; see ``run.identity``.
        reports_as: the name under which this start reports a cache that has failed: one part of a key.
    """

    store: str | None = None
    cache_dir: Path | None = None
    report: Path | None = None
    restore_deadline_s: float = 30.0
    publish_deadline_s: float = 300.0
    wait_s: float = 120.0
    node_store: Path | None = None
    node_store_bytes: int = 20_000_000_000
    publish_interval_s: float = 900.0
    settle_s: float = 3.0
    ready_timeout_s: float = 3600.0
    publish: bool = True
    restore: bool = True
    cache: bool = True
    poison_window_s: float = 60.0
    metrics: Path | None = None
    signing_key: str | None = None
    trusted_keys: tuple[str, ...] = ()
    engine: str | None = None
    quiet: bool = False
    json: bool = False
    weights: bool = True
    host_memory: str = ""
    max_bandwidth: int | None = None
    weights_deadline_s: float = 30.0
    require_seal: bool = False
    role: str = "auto"
    reports_as: str = "default"

    def __post_init__(self) -> None:
        for name in ("restore_deadline_s", "publish_deadline_s", "ready_timeout_s", "weights_deadline_s"):
            if getattr(self, name) <= 0:
                option = "--" + name.removesuffix("_s").replace("_", "-")
                raise UsageError(f"{option} must be longer than 0 s", object=option)
        for name in ("settle_s", "wait_s", "poison_window_s"):
            if getattr(self, name) < 0:
                option = "--" + name.removesuffix("_s")
                raise UsageError(f"{option} must not be negative", object=option)
        if self.host_memory not in {"", "auto", "full"}:
            parse_bytes(self.host_memory, name="--host-memory")
        if self.role not in {"auto", "reader", "writer"}:
            raise UsageError(f"--role: {self.role!r} is no role", object="--role", hint="write auto, reader or writer")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", self.reports_as) or not is_key(self.reports_as):
            hint = "use letters, digits and . _ -"
            raise UsageError(f"--reports-as: {self.reports_as!r} can't be a part of a key", object="--reports-as", hint=hint)
