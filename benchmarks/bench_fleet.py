"""Sixteen starts of one envelope in the same moment, against one: how often is it compiled, and when is the last of them done?

Boundary: `glowplug run` under the generic adapter, sixteen processes on this machine, each with an empty live folder and a report
of its own, one empty store for all: a folder, or a real S3 server (SeaweedFS) on this machine. The command "compiles" by sleeping
for 5 s and then writes 8 files of 1 MB of random bytes; if it finds them it reads them and ends. Time is from the start of the
first wrapper to the end of the last, publication included. A fleet has a node for each wrapper, and these share the cores of one
machine; so that their imports of Python and botocore are not what is measured, one after the other on few cores, wrappers are
forked from a process that has loaded them: "one", a single wrapper on an empty store; "fleet"; and "killed", in which the wrapper
that compiles and its command are killed (SIGKILL) 2.5 s after it has begun, and one of the others takes over after 20 s of silence.
"one, spawned" and "fleet, spawned" are the same with the command line's own start of each, imports included.

    python -m benchmarks.bench_fleet
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import zstandard  # noqa: F401

import glowplug.run.publishing
import glowplug.store.s3_session  # noqa: F401  for the forked wrappers, as the line above and the next
from benchmarks import record, rounds
from glowplug.run.options import RunOptions
from glowplug.run.supervisor import supervise
from testbed.seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Starter: TypeAlias = "Callable[[str, Path, Path, list[str], dict[str, str]], int]"

STARTS, COMPILE_S = 16, 5.0
_TIMEOUT_S = 180.0
_COMMAND = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "00")
graphs = [folder / f"c{number}.so" for number in range(8)]
if all(graph.exists() for graph in graphs):
    sys.exit(0 * sum(len(graph.read_bytes()) for graph in graphs))
with open(os.environ["BENCH_LOG"], "a") as log:
    log.write(f"{os.getpid()} {os.getppid()}\\n")
time.sleep(float(os.environ["BENCH_COMPILE_S"]))
folder.mkdir(parents=True)
for graph in graphs:
    graph.write_bytes(os.urandom(1_000_000))
"""


@dataclass(frozen=True)
class _Site:
    """Where the starts take place.

    Attributes:
        work: for everything.
        url: makes a new empty store.
        env: variables of its clients.
    """

    work: Path
    url: Callable[[], str]
    env: Mapping[str, str]

    def contenders(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """What is compared."""
        return {
            "one": lambda: self._starts(1),
            "fleet": lambda: self._starts(STARTS),
            "killed": lambda: self._starts(STARTS, kill_after_s=COMPILE_S / 2),
            "one, spawned": lambda: self._starts(1, start=_spawn),
            "fleet, spawned": lambda: self._starts(STARTS, start=_spawn),
        }

    def _starts(self, number: int, *, kill_after_s: float | None = None, start: _Starter | None = None) -> dict[str, Any]:
        node = Path(tempfile.mkdtemp(dir=self.work))
        script, log = self.work / "compile.py", node / "log"
        script.write_text(_COMMAND)
        log.touch()
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | dict(self.env)
        env |= {"BENCH_LOG": str(log), "BENCH_COMPILE_S": str(COMPILE_S), "XDG_CONFIG_HOME": str(self.work / "config")}
        url, command = self.url(), [sys.executable, str(script)]
        begun = time.perf_counter()
        wrappers = [(start or _fork)(url, node / "live", node / f"{each}.json", command, env) for each in range(number)]
        killed = None if kill_after_s is None else _kill(log, kill_after_s)
        ends = _until_ended(wrappers, begun, besides=killed)
        reports = [json.loads(path.read_text()) for path in node.glob("*.json")]
        sample = {
            "wall_s": max(ends.values()),
            "compiles": len(log.read_text().splitlines()),
            "ready": len(reports),
            "outcomes": sorted(report["outcome"] for report in reports),
        }
        shutil.rmtree(node)
        return sample


def _spawn(url: str, live: Path, report: Path, command: list[str], env: dict[str, str]) -> int:
    """A wrapper, as a shell starts it; its process id."""
    words = [sys.executable, "-m", "glowplug", "run", "--quiet", "--store", url, "--cache-dir", str(live), "--report", str(report)]
    return os.posix_spawn(sys.executable, [*words, "--", *command], env)


def _fork(url: str, live: Path, report: Path, command: list[str], env: dict[str, str]) -> int:
    """A wrapper without its imports; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.environ.clear()
        os.environ.update(env)
        code = supervise(RunOptions(store=url, cache_dir=live, report=report, quiet=True), command, os.environ)
    finally:
        os._exit(code)


def _until_ended(pids: list[int], begun: float, *, besides: int | None) -> dict[int, float]:
    """When each of them has ended, and well; all but one."""
    ends: dict[int, float] = {}
    while len(ends) < len(pids):
        assert time.perf_counter() - begun < _TIMEOUT_S, "a start did not end"
        for pid in set(pids) - ends.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                ends[pid] = time.perf_counter() - begun
                assert not status or pid == besides, "a start failed"
        time.sleep(0.005)
    if besides is not None:
        ends.pop(besides)
    return ends


def _kill(log: Path, after_s: float) -> int:
    """Kill whoever compiles, some time after it has begun; the wrapper's process id."""
    end = time.perf_counter() + _TIMEOUT_S
    while not log.read_text().endswith("\n"):
        assert time.perf_counter() < end, "nobody compiles"
        time.sleep(0.005)
    command, wrapper = map(int, log.read_text().split()[:2])
    time.sleep(after_s)
    os.kill(wrapper, signal.SIGKILL)
    os.kill(command, signal.SIGKILL)
    return wrapper


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="only see that it works; writes nothing")
    options = parser.parse_args()
    document: dict[str, Any] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "), "starts": STARTS}
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder, contextlib.ExitStack() as servers:
        server = servers.enter_context(SeaweedFS(Path(folder, "s3")))
        names = iter(range(1000))
        sites = {
            "s3": _Site(Path(folder), lambda: f"s3://{server.bucket}/{next(names)}", server.env),
            "file": _Site(Path(folder), lambda: f"file://{folder}/store-{next(names)}", {}),
        }
        contenders = {f"{place} {name}": each for place, site in sites.items() for name, each in site.contenders().items()}
        contenders["s3 one, spawned"]()  # makes the key, warms the page cache and writes byte code
        samples = rounds.run(contenders, 1 if options.quick else options.n)
    for place, site in sites.items():
        document[place] = _figures({name: samples[f"{place} {name}"] for name in site.contenders()})
        print(place, json.dumps({name: document[place][name] for name in ("ratios", "compiles", "ready")}))
    document["targets"] = "compiles 1, killed 2; ready 16, killed 15; fleet / one <= 1.5"
    if not options.quick:
        print(record.write("fleet", document))


def _figures(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    wall = {name: rounds.column(each, "wall_s") for name, each in samples.items()}
    return {
        "seconds": {name: record.summary(each) for name, each in wall.items()},
        "ratios": {
            "fleet / one": record.ratio(wall["fleet"], wall["one"]),
            "fleet / one, spawned": record.ratio(wall["fleet, spawned"], wall["one, spawned"]),
        },
        "compiles": {name: [sample["compiles"] for sample in each] for name, each in samples.items()},
        "ready": {name: [sample["ready"] for sample in each] for name, each in samples.items()},
    }


if __name__ == "__main__":
    main()
