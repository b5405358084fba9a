"""A node and a store that a wrapper can be killed on, again and again, and what must hold afterwards.

Each trial begins from the same state: what the store holds, and what lies in the live folder. Then a command is killed at one of
its steps (``launcher.py``), a reader looks at the store, the command runs once more to its end, and everything is looked at again.
Every file's right content is known, so a torn one, or one of another generation, is seen.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import glowplug
from glowplug.cache import layout
from glowplug.cache.capture import capture
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import Envelope
from glowplug.cache.families import INDUCTOR
from glowplug.cache.keyring import config_home, load_trust
from glowplug.cache.keys import PrivateKey
from glowplug.cache.lease import TTL_S, Watch
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.cache.secrets import SecretScan
from glowplug.cache.trust import KeySigner
from glowplug.cache.verify import verify_shelf
from glowplug.store import open_store
from tests.run.program import BYTECODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glowplug.store.base import Store

HERE = Path(__file__).resolve().parent
ENGINE = str(HERE / "engine.sh")
GRAPHS = 6
"""Graphs in each family that the source has; an engine uses as many of them as it is told to."""
GRAPH_BYTES = 40_000
FAMILIES = ("inductor", "triton")
_ENDED_S = 20.0


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    """Its exit code; -9 if it was killed."""
    said: str
    steps: tuple[str, ...] = ()


class Launcher:
    """``launcher.py --fork``, and the way to ask it. A context manager."""

    def __enter__(self) -> Self:
        environment = os.environ | BYTECODE | {"PYTHONPATH": str(Path(glowplug.__file__).parents[1])}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._folder = Path(tempfile.mkdtemp(prefix="glowplug-faults-"))
        os.mkfifo(self._folder / "alive")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(HERE / "launcher.py"), "--fork"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_ENDED_S)
        shutil.rmtree(self._folder)

    def __call__(self, words: Iterable[str], env: Mapping[str, str], *, kill: int = 0, shift_s: float = 0.0) -> Ended:
        """Run a command, killed at a step if ``kill`` names one, and wait until it and whatever it has started have ended."""
        out, steps = self._folder / "out", self._folder / "steps"
        steps.unlink(missing_ok=True)
        alive = os.open(self._folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
        try:
            asked = {"words": list(words), "env": dict(env), "kill": kill, "shift": shift_s, "out": str(out), "steps": str(steps)}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(asked | {"alive": str(self._folder / "alive")}) + "\n")
            self._process.stdin.flush()
            code = json.loads(self._process.stdout.readline())["code"]
            poll = select.poll()
            poll.register(alive, select.POLLHUP)
            assert poll.poll(_ENDED_S * 1000), "the engine did not end"
        finally:
            os.close(alive)
        reached = tuple(steps.read_text().splitlines()) if steps.exists() else ()
        return Ended(code, out.read_text(errors="replace"), reached)


@dataclass(frozen=True)
class Place:
    """A store to use, by URL, and the variables that it takes."""

    url: str
    env: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Store:
        return open_store(self.url, env=dict(self.env))

    @property
    def folder(self) -> Path | None:
        """Where it lies, if it is a folder."""
        return Path(self.url.removeprefix("file://")) if self.url.startswith("file://") else None


def objects_of(store: Store) -> dict[str, bytes]:
    """All that a store holds."""
    return {info.key: store.get(info.key).data for info in store.list("v1/")}


@dataclass
class Node:
    """One machine. Live folder, home, report and journal lie in one folder, which is the same for every trial.

    Args:
        folder: of its own.
        launcher: runs commands.
        own_key: the user's key is made by the first publication; otherwise one is named.
    """

    folder: Path
    launcher: Launcher
    own_key: bool = False
    graphs: int = 4
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = PrivateKey(b"f" * 32)
        (self.folder / "fleet.key").write_text(key.pem)
        os.chmod(self.folder / "fleet.key", 0o600)
        for family in FAMILIES:
            for number in range(GRAPHS):
                path = self.source / family / str(number) / "graph.so"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(random.Random(f"{family} {number}").randbytes(GRAPH_BYTES))
        self.reset()

    home = property(lambda self: self.folder / "home")
    live = property(lambda self: self.folder / "live")
    source = property(lambda self: self.folder / "source")
    journal = property(lambda self: self.folder / "journal")
    copies = property(lambda self: self.folder / "copies")
    report = property(lambda self: self.folder / "reports" / "report.json")

    @property
    def env(self) -> dict[str, str]:
        given = {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "TMPDIR": str(self.home / "tmp"),  # where other engines' precompiled headers are none of ours
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "AWS_EC2_METADATA_DISABLED": "true",
            "JOURNAL": str(self.journal),
            "SOURCE": str(self.source),
            "GRAPHS": str(self.graphs),
            "GLOWPLUG_CACHE_DIR": str(self.live),
            "GLOWPLUG_SETTLE": "0s",
            "GLOWPLUG_PUBLISH_INTERVAL": "0s",
            "GLOWPLUG_WAIT": "1s",
        }
        return given | ({} if self.own_key else {"GLOWPLUG_SIGNING_KEY": str(self.folder / "fleet.key")}) | self.extra

    def reset(self, live: Path | None = None) -> None:
        """Become a new machine, or one on whose disk lies a copy of this live folder."""
        for folder in (self.home, self.live, self.copies, self.report.parent):
            shutil.rmtree(folder, ignore_errors=True)
        self.journal.unlink(missing_ok=True)
        (self.home / "tmp").mkdir(parents=True)
        self.report.parent.mkdir()
        if live is not None:
            shutil.copytree(live, self.live)

    def start(self, place: Place, *words: str, kill: int = 0, shift_s: float = 0.0, env: Mapping[str, str] | None = None) -> Ended:
        """``glowplug WORDS --store ... -- engine.sh``."""
        options = ["--store", place.url, *(["--report", str(self.report)] if words[0] == "run" else [])]
        given = self.env | dict(place.env) | dict(env or {})
        return self.launcher([*words, *options, "--", ENGINE], given, kill=kill, shift_s=shift_s)

    def envelope(self, place: Place) -> str:
        """The digest of the engine's envelope."""
        ended = self.launcher(["cache", "key", "--json", "--", ENGINE], self.env | dict(place.env))
        return str(json.loads(ended.said[ended.said.index("{") :])["envelope"])

    # --- what is there

    def torn(self, tree: Path) -> list[str]:
        """Files of a tree whose content is not what the engine wrote."""
        bad = []
        for path in sorted(path for family in FAMILIES for path in (tree / family).rglob("*") if path.is_file()):
            source = self.source / path.relative_to(tree)
            if not source.exists() or source.read_bytes() != path.read_bytes():
                bad.append(str(path.relative_to(tree)))
        return bad

    def whole(self, tree: Path) -> int:
        """How many graphs a tree holds; fails unless it is exactly the first so many of every family, every byte right."""
        assert not self.torn(tree)
        found = {str(path.relative_to(tree)) for family in FAMILIES for path in (tree / family).rglob("*") if path.is_file()}
        count = len(found) // len(FAMILIES)
        assert found == {f"{family}/{number}/graph.so" for family in FAMILIES for number in range(count)}, sorted(found)
        return count

    def seen_by_a_reader(self, place: Place, envelope: str) -> int:
        """How many graphs the generation has that a reader gets now; 0 for no generation. Fails for one that is not whole."""
        repository = Repository(place.open())
        pointer = repository.latest(envelope)
        if pointer is None:
            return 0
        env = self.env | dict(place.env)
        manifest = repository.load(envelope, pointer.generation, load_trust(env, home=config_home(env)))
        with tempfile.TemporaryDirectory(dir=self.folder) as fresh:
            pack = layout.pack_key(envelope, manifest.pack.sha256)
            restore(repository.store, pack, manifest, Path(fresh), deadline=Deadline(30, step="restore"))
            return self.whole(Path(fresh))

    def bad_generations(self, place: Place) -> list[str]:
        """What ``glowplug cache verify`` finds, of all that the store holds."""
        repository = Repository(place.open())
        env = self.env | dict(place.env)
        trust = load_trust(env, home=config_home(env))
        findings = [finding for shelf in repository.shelves() for finding in verify_shelf(repository, shelf, trust)]
        return [finding.problem for finding in findings if finding.problem]

    def engines(self) -> tuple[int, list[str]]:
        """How many engines began since the last reset, and how those ended that did."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return lines.count("began"), [line for line in lines if line.startswith("ended")]

    def leaked_lease(self, place: Place, envelope: str) -> str:
        """Who would hold the lease after the silence that ends one, although nobody runs any more; empty for nobody."""
        watch = Watch(place.open(), envelope)
        seen = watch.look()
        if seen is None or not seen.held:
            return ""
        watch._since_s -= min(seen.holder.ttl_s, TTL_S)
        watch.look()
        return "" if watch.free else str(seen.holder)

    def temporary(self, place: Place) -> list[Path]:
        """Temporary files of ours: in the live folder, beside the report, in the home, in a store's spool."""
        found = [path for path in self.report.parent.iterdir() if path != self.report]
        found += [path for path in self.live.glob("*/.glowplug/*") if re.match(r"staging-|pack-|.*tmp", path.name)]
        found += [path for path in self.home.rglob("*.tmp") if path.is_file()]
        found += self.copies.rglob("*.part")
        if place.folder is not None:
            found += (place.folder / ".glowplug" / "spool").glob("*")
        return found

    def publish_something_else(self, place: Place) -> None:
        """What the next publication to this store by anybody does, for another envelope: it sweeps up after the dead."""
        tree = self.folder / "another"
        (tree / "inductor").mkdir(parents=True, exist_ok=True)
        (tree / "inductor" / "x.so").write_bytes(b"x")
        captured = capture(
            Repository(place.open()),
            Envelope({"engine": {"name": "another"}}),
            tree,
            (INDUCTOR,),
            KeySigner(PrivateKey(b"f" * 32)),
            replaces=None,
            cold_start_s=None,
            ranks=1,
            settle_s=0,
            scan_secrets=SecretScan({}),
            deadline=Deadline(30, step="publish"),
        )
        assert captured.manifest.files
