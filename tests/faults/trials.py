"""Commands that are killed, what there is before, and what must hold afterwards: after each kill, and after a rerun."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.cache.repository import Repository
from glowplug.errors import GlowplugError
from tests.faults.nodes import Node, objects_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.nodes import Launcher, Place


class Broken(AssertionError):
    """Something that must hold does not.

    Attributes:
        kind: ``torn read``, ``engine crash``, ``leaked lease``, ``failed rerun``, ``left behind`` or ``harness``.
        what: what was seen.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind
        self.what = what


def hold(kind: str, condition: bool, what: str) -> None:
    """Raise Broken unless the condition is met."""
    if not condition:
        raise Broken(kind, what)


@dataclass(frozen=True)
class Trial:
    """A command that is killed, and what may be seen afterwards.

    Attributes:
        name: in a test's id.
        words: the command's first ones.
        store: graphs of the generation that the store holds before; 0 for an empty store.
        live: graphs that lie in the live folder before; 0 for none.
        graphs: that the engine needs.
        seen: graphs of the generations that a reader may get after the kill; 0 for none.
        final: the same after the command has run to its end.
        own_key: the user's key is made on the way.
        copies: the node keeps copies of what it fetches.
    """

    name: str
    words: tuple[str, ...]
    store: int
    live: int
    graphs: int
    seen: frozenset[int]
    final: frozenset[int]
    own_key: bool = False
    copies: bool = False


TRIALS = (
    Trial("publish", ("run",), 0, 0, 4, frozenset({0, 4}), frozenset({4})),
    Trial("publish-with-a-new-key", ("run",), 0, 0, 4, frozenset({0, 4}), frozenset({4}), own_key=True),
    Trial("restore", ("run",), 4, 0, 4, frozenset({4}), frozenset({4})),
    Trial("restore-and-keep-copies", ("run",), 4, 0, 4, frozenset({4}), frozenset({4}), copies=True),
    Trial("restore-over-an-older-tree", ("run",), 4, 2, 4, frozenset({4}), frozenset({4})),
    Trial("restore-and-publish-more", ("run",), 4, 0, 6, frozenset({4, 6}), frozenset({4, 6})),
    Trial("restore-ahead", ("cache", "restore"), 4, 2, 4, frozenset({4}), frozenset({4})),
    Trial("capture", ("cache", "capture"), 2, 4, 4, frozenset({2, 4}), frozenset({4})),
)


def sample(steps: int, points: int, *, seed: str) -> list[int]:
    """Some of so many steps, numbered from 1: one drawn from each of as many equal stretches, and the last."""
    chance = random.Random(seed)
    edges = [round(number * steps / points) for number in range(points + 1)]
    return sorted({chance.randint(low + 1, high) for low, high in itertools.pairwise(edges) if high > low} | {steps})


class Range:
    """Where trials run: a node, a kind of store, and the states that they begin from.

    Args:
        folder: scratch.
        launcher: runs commands.
        new_place: an empty store, another one at each call.
        own_key: as for ``Node``.
    """

    def __init__(self, folder: Path, launcher: Launcher, new_place: Callable[[], Place], *, own_key: bool = False) -> None:
        self.node = Node(folder / "node", launcher, own_key)
        self._folder = folder
        self._new_place = new_place
        self._stores: dict[int, dict[str, bytes]] = {0: {}}
        self._lives: dict[int, Path] = {}
        self.envelope = self.node.envelope(new_place())

    def begin(self, trial: Trial) -> Place:
        """Set up the state that a trial begins from."""
        node = self.node
        for graphs in {trial.store, trial.live} - {0}:
            self._make(graphs)
        node.graphs = trial.graphs
        node.extra = {"GLOWPLUG_NODE_STORE": str(node.copies)} if trial.copies else {}
        node.reset(self._lives[trial.live] if trial.live else None)
        place = self._new_place()
        store = place.open()
        for key, data in sorted(self._stores[trial.store].items(), key=lambda item: item[0].endswith("latest")):
            store.put(key, data)
        return place

    def steps(self, trial: Trial) -> tuple[str, ...]:
        """The steps of a trial's command that nobody kills."""
        ended = self.node.start(self.begin(trial), *trial.words)
        assert ended.code == 0, ended.said
        return ended.steps

    def kill(self, trial: Trial, at: int, *, named: str = "") -> bool:
        """Kill the command at a step, and check all that must hold then, and after it has run again.

        Args:
            trial: which command, and what is there.
            at: the step's number, from 1.
            named: what the step was when nobody was killed, for the error.

        Returns:
            Whether it was killed: threads may take another turn, and then there are fewer steps.

        Raises:
            Broken: something does not hold.
        """
        place = self.begin(trial)
        where = f"{trial.name} on {place.url}, killed at step {at} ({named or 'of unknown name'})"
        try:
            code = self.node.start(place, *trial.words, kill=at).code
            self._after_the_kill(trial, place, code)
            self._after_a_rerun(trial, place)
        except Broken as broken:
            raise Broken(broken.kind, f"{where}: {broken.what}") from None
        except (AssertionError, GlowplugError) as error:
            raise Broken("torn read", f"{where}: {error}") from error
        return code != 0

    def _after_the_kill(self, trial: Trial, place: Place, code: int) -> None:
        node = self.node
        hold("harness", code in {-9, 0}, f"ended with {code}")
        self._look(trial.seen, place, trusted=not trial.own_key or any(node.home.glob(".config/glowplug/keys/*.key")))
        for tree in node.live.glob("*"):
            hold("torn read", not node.torn(tree), f"torn in the live folder: {node.torn(tree)}")

    def _after_a_rerun(self, trial: Trial, place: Place) -> None:
        node = self.node
        ended = node.start(place, *trial.words)
        fine = ended.code == 0 and "Traceback" not in ended.said and "internal error" not in ended.said
        hold("failed rerun", fine, ended.said)
        seen = self._look(trial.final, place, trusted=True)
        for tree in node.live.glob("*"):
            hold("torn read", node.whole(tree) >= seen, "the live folder has less than the generation")
        node.publish_something_else(place)
        hold("left behind", not node.temporary(place), str(node.temporary(place)))

    def _look(self, allowed: frozenset[int], place: Place, *, trusted: bool) -> int:
        """What holds at any moment: engines live and read nothing torn, readers get something whole, nobody keeps the lease."""
        node = self.node
        began, ends = node.engines()
        hold("engine crash", len(ends) == began, f"{began} engines began, {len(ends)} ended")
        hold("torn read", all("torn=0" in line for line in ends), str(ends))
        if trusted:
            seen = node.seen_by_a_reader(place, self.envelope)
            hold("torn read", not (bad := node.bad_generations(place)), str(bad))
        else:  # there is no key yet, so nobody can have signed
            seen = int(Repository(place.open()).latest(self.envelope) is not None)
        hold("torn read", seen in allowed, f"a reader gets {seen} graphs")
        leaked = node.leaked_lease(place, self.envelope)
        hold("leaked lease", not leaked, leaked)
        return seen

    def _make(self, graphs: int) -> None:
        if graphs in self._lives:
            return
        node, place = self.node, self._new_place()
        node.reset()
        node.graphs = graphs
        ended = node.start(place, "run", env={"GLOWPLUG_SIGNING_KEY": str(node.folder / "fleet.key")})
        assert ended.code == 0, ended.said
        self._stores[graphs] = objects_of(place.open())
        assert any(key.endswith("/latest") for key in self._stores[graphs]), ended.said
        self._lives[graphs] = self._folder / f"live-{graphs}"
        shutil.copytree(node.live, self._lives[graphs])
