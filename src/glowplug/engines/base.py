"""What an engine's adapter tells the supervisor, as plain data.

An adapter looks at the command after ``--`` and at files; it starts no engine, sets nothing, and knows no store. The supervisor
asks each adapter in turn (``registry.recognise``); the first that knows the command describes it. The only thing an adapter may
run is one question to the command's own Python (docs/adr/0001).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from glowplug.cache.envelope import Json
    from glowplug.cache.families import Family
    from glowplug.timeline.outcome import Evidence
    from glowplug.timeline.phases import Phase
    from glowplug.timeline.report import EngineInfo


@dataclass(frozen=True, slots=True)
class HttpReadiness:
    """The engine is ready when this URL answers 200."""

    url: str
    """Such as ``http://127.0.0.1:8000/health``; for a Unix socket ``http+unix://%2Ftmp%2Fvllm.sock/health``, percent-encoded."""


@dataclass(frozen=True, slots=True)
class ExitReadiness:
    """The command is done, and its cache worth keeping, when it exits 0."""


class EngineLog(Protocol):
    """Reads an engine's output line by line while it starts. Called from one thread at a time; never raises on any text."""

    def feed(self, line: str, at_s: float) -> None:
        """One line without its end, and when it arrived, in seconds after the wrapper's start."""
        ...

    def phases(self, spawned_s: float, ready_s: float) -> list[Phase]:
        """The engine's phases between two moments (seconds after the wrapper's start), in order, not overlapping."""
        ...

    def evidence(self) -> Evidence:
        """What the log has said so far about loading and compiling."""
        ...


@dataclass(frozen=True, slots=True)
class Poisoner:
    """A setting that makes a cache's key differ where the compiled code need not.

    Attributes:
        name: of the variable or the option.
        value: as it is set, without credentials.
        severity: ``warning`` if it differs from pod to pod as a rule, or defeats the cache; ``note`` if it may.
        seen_by: ``both`` if the envelope holds it, so that a start misses; ``engine`` if the engine's own key alone does, so that
            what was restored is not used.
        what: what it is, as a clause.
        remedy: what to do, as an instruction.
    """

    name: str
    value: str
    severity: Literal["warning", "note"]
    seen_by: Literal["both", "engine"]
    what: str
    remedy: str

    def line(self) -> str:
        """For a log."""
        return f"{self.name}={self.value}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command, understood.

    Attributes:
        engine: which engine it starts.
        components: the envelope's groups, all but ``paths.cache`` (which the supervisor adds unless ``relocatable``).
        relocatable: the cache hits wherever it lies, so its path is no part of the envelope.
        families: the caches that the engine writes.
        readiness: how to tell that it is ready.
        ranks: how many ``rank_*`` folders a complete compile cache of this node has; 1 for one process.
        log: makes a reader for this engine's output.
        explain_miss: asked when restored files were not (all) used. Given the live root and the restored files' paths in it, it
            says from the engine's own records what differs, as a clause; empty where they don't tell.
        key_record: given the same, what the engine itself recorded of this start's key, as small JSON without secrets; None where
            it wrote nothing, or nothing that can be told apart.
        poisoners: settings that make keys differ where compiled code does not; a superset of what ``notices`` say of them.
        notices: lines for the user, such as a setting that defeats the cache. No ends of line.
        imports_s: for so many seconds after its spawn the engine surely does not look into its compile cache, so that a restore
            may still be under way; 0 where nothing is known.
        unsure: why a part of the envelope is not known, so that the cache must take no part in this start; empty otherwise.
    """

    engine: EngineInfo
    components: Mapping[str, Json]
    relocatable: bool
    families: tuple[Family, ...]
    readiness: HttpReadiness | ExitReadiness
    ranks: int
    log: Callable[[], EngineLog]
    notices: tuple[str, ...] = ()
    explain_miss: Callable[[Path, Collection[str]], str] = lambda _root, _restored: ""
    key_record: Callable[[Path, Collection[str]], Mapping[str, Json] | None] = lambda _root, _restored: None
    poisoners: tuple[Poisoner, ...] = ()
    imports_s: float = 0.0
    unsure: str = ""


@dataclass(frozen=True, slots=True)
class Handover:
    """What the engine's loader must find when it starts.

    Attributes:
        folder: stands for the checkpoint in the engine's command.
        uri: the checkpoint.
        socket: where the buffer is handed out.
        command: how to start ``glowplug``, as a shell line.
    """

    folder: str
    uri: str
    socket: str
    command: str


@dataclass(frozen=True, slots=True)
class WeightsRequest:
    """The checkpoint that a command will load.

    Attributes:
        uri: a URL as the user wrote it, or the absolute path of a folder on this node.
        is_remote: it is a URL.
        ranks: processes of this node that will each want all of it.
        engine_bytes: host memory that the engine itself will need for so many bytes of weights.
        rewrite: the command that takes its weights from the buffer, and its environment; None where the user's own must stay.
        obstacle: asks the engine's Python whether it would find our loader; what is in the way as a clause, or nothing. Blocks for
            at most ``interpreter.TIMEOUT_S``.
        notice: why a remote checkpoint is left to the engine, as one line; empty where it is not.
        concurrency: requests at once, where the command says so; 0 otherwise.
        others: what else the command has the engine fetch from a URL: a draft model, a tokenizer, adapters.
    """

    uri: str
    is_remote: bool
    ranks: int
    engine_bytes: Callable[[int], int]
    rewrite: Callable[[Handover], tuple[tuple[str, ...], dict[str, str]]] | None = None
    obstacle: Callable[[], str] = lambda: ""
    notice: str = ""
    concurrency: int = 0
    others: tuple[str, ...] = ()


class Adapter(Protocol):
    """One engine."""

    def weights_request(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> WeightsRequest | None:
        """The checkpoint that the command will load; None if that can't be told or it is not this engine's command.

        Args:
            argv: the command after ``--``, at least one word.
            env: the environment the engine will get.
            cwd: the folder it will start in.

        Raises:
            UsageError: as ``launch``.
        """
        ...

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch | None:
        """Describe the command, or None if it is not this engine's. Reads files and metadata only; never imports torch.

        Args:
            argv: the command after ``--``, at least one word.
            env: the environment the engine will get, before the cache variables are set.
            cwd: the folder it will start in.

        Raises:
            UsageError: the command is this engine's, and the engine could not start with it either way (such as ``--config`` naming
                a file that does not exist).
        """
        ...
