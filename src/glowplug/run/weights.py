"""The weights of one start: streamed into a host buffer while the engine imports, if the command's checkpoint has a URL.

The steps before the spawn run in a thread of their own with a deadline: open the checkpoint, choose the memory, begin to fetch, lay
out the metadata folder. All of them fail open: whatever goes wrong ends in one line and the user's own command, which fetches its
weights as it would have without us. Two things are refused instead of failing open, because going on would hand the engine bytes
that the user asked us to check: ``--require-seal`` without a good seal, and a checkpoint that is not what somebody trusted has
sealed.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from glowplug.cache.deadline import Deadline
from glowplug.engines.base import Handover
from glowplug.engines.registry import weights_request
from glowplug.errors import IntegrityError, UnknownKey, Unsigned, UsageError
from glowplug.run import process
from glowplug.run.restoring import trust_for
from glowplug.run.start import describe_error
from glowplug.run.started import Started, own_command, rewritten
from glowplug.run.warming import Warming
from glowplug.threads import begin, none_left
from glowplug.timeline.report import WeightsReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from glowplug.engines.base import WeightsRequest
    from glowplug.run.clock import Clock
    from glowplug.run.console import Console
    from glowplug.run.options import RunOptions
    from glowplug.weights.base import Checkpoint, FeedStats, Source
    from glowplug.weights.buffer.feed import Feed
    from glowplug.weights.fetch.settings import FetchSettings
    from glowplug.weights.seals.seal import Seal

_POLL_S = 0.005


class Weights:
    """One start's weights. Used by the supervisor's threads one after the other; ``close`` may be called from any."""

    def __init__(self, options: RunOptions, argv: tuple[str, ...], env: Mapping[str, str], console: Console, clock: Clock) -> None:
        self._options = options
        self._own = Started(argv, env, env)
        self._console = console
        self._clock = clock
        self._request: WeightsRequest | None = None
        self._warming: Warming | None = None
        self._opening: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._feed: Feed | None = None
        self._source: Source | None = None
        self._handover: Handover | None = None
        self._problem: Exception | None = None
        self._not_as_sealed: IntegrityError | None = None
        self._last: FeedStats | None = None

    def begin(self) -> None:
        """Find the checkpoint, and begin to fetch it if it is a remote one. Returns at once.

        Raises:
            UsageError: a setting that can't be used; or ``--require-seal``, and nothing is streamed.
        """
        if not self._options.weights:
            self._refuse_unsealed("--no-weights leaves them to the engine")
            return
        try:
            self._request = weights_request(self._own.argv, self._own.env, os.getcwd(), engine=self._options.engine)
        except UsageError:
            return  # whoever describes the command says it
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            self._console.warn(f"weights are left to the engine: {describe_error(error)}")
        request = self._request
        if request is not None and request.is_remote and request.rewrite is not None:
            settings = self._settings(request)
            self._refuse_others(request)
            opening = threading.Thread(target=self._open, args=(request, settings), name="glowplug-weights", daemon=True)
            if begin(opening):
                self._opening = opening
                return
            self._refuse_unsealed(none_left().line())
            self._console.warn(f"weights are left to the engine: {none_left().line()}")
            return
        if request is not None and request.is_remote and request.notice:
            self._console.note(request.notice)
        if request is not None and not request.is_remote:
            self._warming = Warming(request, self._console)
        self._refuse_unsealed("only a checkpoint that is streamed is verified")

    def command(self) -> Started:
        """What to spawn. Blocks until the metadata is there, for no longer than the deadline or a signal that ends the start.

        Raises:
            UsageError: ``--require-seal``, and there is no good seal.
            IntegrityError: the checkpoint is not what was sealed.
        """
        opening, request = self._opening, self._request
        if opening is None or request is None or request.rewrite is None:
            return self._own
        deadline = Deadline(self._options.weights_deadline_s, step="weights")
        obstacle = ""
        try:
            obstacle = request.obstacle()  # while the network is waited for
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            obstacle = describe_error(error)
        while opening.is_alive() and not obstacle and deadline.remaining_s and process.pending_stop() is None:
            opening.join(_POLL_S)
        handover, problem = self._handover, self._problem
        if handover is not None and not obstacle:
            try:
                return rewritten(request.rewrite, handover, self._own.env)
            except Exception as error:  # noqa: BLE001  fail-open boundary, as above
                obstacle = describe_error(error)
        self.close()
        if self._not_as_sealed is not None and not obstacle:
            raise self._not_as_sealed
        late = f"the checkpoint was not opened within {self._options.weights_deadline_s:g} s (raise --weights-deadline)"
        reason = obstacle or (describe_error(problem) if problem is not None else late)
        self._refuse_unsealed(reason)
        if process.pending_stop() is None:
            self._console.warn(f"weights are left to the engine: {reason}")
        return self._own

    def again(self) -> Weights:
        """For another attempt of the same engine: nothing is shared, because the first may have used up what was there."""
        return Weights(self._options, self._own.argv, self._own.env, self._console, self._clock)

    def engine_runs(self) -> None:
        """The engine has been spawned. Reads a local checkpoint into the page cache from now on."""
        if self._warming is not None:
            self._warming.start()

    def conclude(self) -> WeightsReport | None:
        """What has become of it, once the engine is ready or has ended. Frees the buffer; tensors that the engine holds stay."""
        self.close()
        if self._warming is not None:
            return self._warming.report()
        if self._last is None or self._request is None:
            return None
        origin_s = time.monotonic() - self._clock.now_s()
        return _report(self._last, origin_s=origin_s)

    def close(self) -> None:
        """Stop whatever runs, and free the buffer. May be called more than once; returns within a second or two."""
        if self._warming is not None:
            self._warming.stop()
        with self._lock:
            self._closed = True
            feed, self._feed = self._feed, None
        if feed is not None:
            try:
                self._last = feed.stats()
                if self._last.error:  # the engine's log has it too, far above its last lines
                    self._console.warn(f"the weights could not be loaded: {self._last.error}")
                feed.close()
                if self._source is not None:
                    self._source.close()
            except Exception as error:  # noqa: BLE001  fail-open boundary: the engine goes on
                self._console.warn(f"the weights' buffer was not closed: {describe_error(error)}")

    def _settings(self, request: WeightsRequest) -> FetchSettings:
        from glowplug.weights.fetch.settings import FetchSettings  # noqa: PLC0415  only where something is streamed

        settings = FetchSettings.from_env(self._own.env)
        return settings.over(max_bandwidth=self._options.max_bandwidth, concurrency=request.concurrency or None)

    def _open(self, request: WeightsRequest, settings: FetchSettings) -> None:
        try:
            self._fetch(request, settings)
        except Exception as error:  # noqa: BLE001  fail-open boundary: a start never fails because of us
            self._problem = error

    def _fetch(self, request: WeightsRequest, settings: FetchSettings) -> None:
        """Begin to fetch, and lay out the folder that stands for the checkpoint."""
        from glowplug.weights.buffer.feed import Feed  # noqa: PLC0415  the same
        from glowplug.weights.buffer.memory import choose_memory  # noqa: PLC0415  the same
        from glowplug.weights.checkpoint.metadata_folder import make_metadata_folder  # noqa: PLC0415  the same
        from glowplug.weights.checkpoint.opening import open_checkpoint  # noqa: PLC0415  only where something is streamed
        from glowplug.weights.fetch.plan import least_memory_bytes  # noqa: PLC0415  the same
        from glowplug.weights.sources.open import open_source  # noqa: PLC0415  the same

        source = open_source(request.uri, env=self._own.env)
        checkpoint = open_checkpoint(source)
        seal = self._seal(source, checkpoint)
        memory = choose_memory(
            checkpoint.size_bytes,
            requested=self._options.host_memory or settings.memory,
            engine_bytes=request.engine_bytes(checkpoint.size_bytes),
            largest_tensor_bytes=least_memory_bytes(checkpoint, block_bytes=seal.block_bytes if seal is not None else None),
        )
        feed = Feed.open(source, checkpoint, settings=settings, memory=memory, ranks=request.ranks, verifier=seal)
        with self._lock:
            if self._closed:  # too late
                feed.close()
                source.close()
                return
            self._feed, self._source = feed, source
        feed.start()
        folder = make_metadata_folder(source, checkpoint)
        if seal is not None:
            self._check_small_files(seal, source, checkpoint, folder.path)
        if folder.notice:
            self._console.warn(folder.notice)
        self._handover = Handover(str(folder.path), checkpoint.uri, str(feed.socket), own_command())
        self._console.note(memory.reason)

    def _seal(self, source: Source, checkpoint: Checkpoint) -> Seal | None:
        """The checkpoint's seal, if somebody trusted has made it. One listing, no more, where there is none."""
        from glowplug.cache.trust import SEAL  # noqa: PLC0415  only where something is streamed
        from glowplug.weights.seals.loading import load_seal  # noqa: PLC0415  the same
        from glowplug.weights.transfer.marker import SEAL_NAME  # noqa: PLC0415  the same

        def verified(document: bytes) -> bytes:  # keys are read where there is a seal
            return trust_for(self._options, self._own.env).verify(document, name=SEAL_NAME, kind=SEAL)

        try:
            seal = load_seal(source, checkpoint, verified)
        except (Unsigned, UnknownKey, UsageError) as error:  # the last: the keys that are named can't be read
            if self._options.require_seal:
                raise
            self._console.warn(f"the weights are not verified: {error.line()}")
            return None
        except IntegrityError as error:
            self._not_as_sealed = error
            raise
        if seal is None and self._options.require_seal:
            hint = "seal it: glowplug weights seal, or leave out --require-seal"
            raise UsageError(f"{checkpoint.uri} has no seal", object=checkpoint.uri, hint=hint)
        return seal

    def _check_small_files(self, seal: Seal, source: Source, checkpoint: Checkpoint, folder: Path) -> None:
        try:
            for entry in checkpoint.others:
                path = folder / entry.name
                if path.is_file():
                    seal.check_small(entry.name, path.read_bytes(), where=source.name_of(entry))
        except IntegrityError as error:
            self._not_as_sealed = error
            raise

    def _refuse_others(self, request: WeightsRequest) -> None:
        if self._options.require_seal and request.others:
            reason = f"{request.others[0]} is fetched by the engine itself"
            raise UsageError(f"--require-seal: not all can be verified: {reason}", object="--require-seal")

    def _refuse_unsealed(self, reason: str) -> None:
        if self._options.require_seal:
            raise UsageError(f"--require-seal: the weights can't be verified: {reason}", object="--require-seal")


def _report(stats: FeedStats, *, origin_s: float) -> WeightsReport:
    """The report of a feed.

    Args:
        stats: of it.
        origin_s: the clock's zero on ``time.monotonic``.
    """
    fetch = stats.fetch
    ended_s = stats.ended_s if stats.ended_s is not None else time.monotonic()
    wanted_s = min((rank.wanted_s for rank in stats.ranks), default=ended_s)
    return WeightsReport(
        uri=stats.uri,
        mode=stats.mode,
        bytes=fetch.bytes,
        seconds=fetch.seconds,
        start_s=stats.begun_s - origin_s,
        requests=fetch.requests,
        retries=fetch.retries,
        hedges=fetch.hedges,
        stalls=fetch.stalls,
        ranks=len(stats.ranks),
        waited_s=max((rank.waited_s for rank in stats.ranks), default=0.0),
        hidden_s=max(0.0, min(wanted_s, ended_s) - stats.begun_s),
        visible_s=max(0.0, ended_s - max(wanted_s, stats.begun_s)),
        verified=fetch.verified,
        error=stats.error,
    )
