"""Kills the wrapper at steps drawn at random while it publishes and while it restores, and counts what must never happen.

Boundary: ``glowplug run`` (and ``cache restore``, ``cache capture``) of a stand-in engine, on a store in a folder and on a real S3
server (SeaweedFS on this machine). A step is an effect: a file opened for writing, half of a write, a rename, a link, a removal, a
lock, a connection, a request, an answer that is there and not yet read (tests/faults/launcher.py). Each trial begins from one
known state, kills the command by SIGKILL at one step, each step of the command as likely as any other, looks at the store as a
reader does and as ``glowplug cache verify`` does, runs the command again to its end, and looks again. Counted are: torn reads (a
generation, or a file that an engine reads, that is not whole, or not one of the two that may be there), crashes of the engine,
leases that outlive the silence that ends one, reruns that fail, and temporary files that a rerun and the next publication leave.
A machine that loses its power is not in it: nothing here is ever synced.

    python -m benchmarks.bench_faults_cache
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import record
from testbed.seaweedfs import SeaweedFS
from tests.faults.nodes import Launcher, Place
from tests.faults.trials import TRIALS, Broken, Range, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAMES = {
    "torn read": "torn_reads",
    "engine crash": "engine_crashes",
    "leaked lease": "leaked_leases",
    "failed rerun": "failed_reruns",
    "left behind": "left_behind",
    "harness": "harness_errors",
}


class Tally:
    """What came of all kills so far. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.killed: Counter[str] = Counter()
        self.not_reached = 0
        self.broken: list[dict[str, str]] = []

    def kill(self, field: Range, trial: Trial, kind: str, steps: tuple[str, ...], at: int) -> None:
        """Do one, and note it."""
        problem = None
        killed = True
        try:
            killed = field.kill(trial, at, named=steps[at - 1])
        except Broken as broken:
            problem = {"kind": broken.kind, "what": broken.what[:1000]}
        with self._lock:
            self.killed[f"{trial.name}, {kind}"] += killed
            self.not_reached += not killed
            if problem:
                self.broken.append(problem)
                print(problem, flush=True)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=500, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="nodes that work at the same time, each with folders of its own")
    parser.add_argument("--folder", type=Path, default=None, help="scratch; a tmpfs is quickest")
    parser.add_argument("--quick", action="store_true", help="one kill of each command and store, nothing is written")
    options = parser.parse_args()
    begun = time.monotonic()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-", dir=options.folder) as scratch, SeaweedFS(Path(scratch, "s3")) as s3:
        numbers = itertools.count()
        kinds: dict[str, Callable[[], Place]] = {
            "folder": lambda: Place(f"file://{scratch}/store-{next(numbers)}"),
            "s3": lambda: Place(f"s3://{s3.bucket}/faults-{next(numbers)}", s3.env),
        }
        what = list(itertools.product(TRIALS, kinds))
        kills = len(what) if options.quick else options.n
        jobs = iter([(trial, kind, kills // len(what) + (number < kills % len(what))) for number, (trial, kind) in enumerate(what)])
        threads = [
            threading.Thread(target=_work, args=(Path(scratch, f"node-{number}"), jobs, kinds, options.seed, tally))
            for number in range(options.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = Counter(_NAMES[problem["kind"]] for problem in tally.broken)
    document: dict[str, Any] = {
        "boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        "kills": sum(tally.killed.values()),
        "steps_not_reached": tally.not_reached,
        "seed": options.seed,
        "seconds": round(time.monotonic() - begun, 1),
        **{name: counts[name] for name in _NAMES.values()},
        "broken": tally.broken,
        "kills_by_command_and_store": dict(tally.killed),
        "target": "500 kills; no torn read, no crash of the engine, no lease that outlives its silence",
    }
    print(json.dumps({key: value for key, value in document.items() if key not in {"boundary", "broken"}}, indent=1))
    if not options.quick:
        print(record.write("faults_cache", document))
    return 1 if tally.broken else 0


def _work(
    folder: Path, jobs: Iterator[tuple[Trial, str, int]], kinds: dict[str, Callable[[], Place]], seed: int, tally: Tally
) -> None:
    """One node's life: take a command and a store, until there are no more."""
    with Launcher() as launcher:
        for number in itertools.count():
            try:
                trial, kind, kills = next(jobs)
            except StopIteration:
                return
            chance = random.Random(f"{seed} {trial.name} {kind}")
            field = Range(folder / str(number), launcher, kinds[kind], own_key=trial.own_key)
            steps = field.steps(trial)
            print(f"{trial.name}, {kind}: {len(steps)} steps, {kills} kills", flush=True)
            for _ in range(kills):
                tally.kill(field, trial, kind, steps, chance.randint(1, len(steps)))


if __name__ == "__main__":
    sys.exit(main())
