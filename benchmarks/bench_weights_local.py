"""A checkpoint on the local disk: ours, ``safetensors.safe_open``, the Run:ai model streamer and fastsafetensors, warm and cold.

Boundary: a plain checkpoint of 2.2 GB in three files; every tensor delivered in the CPU's memory and one byte of each 4 KiB of it
read (benchmarks/loaders.py), from the first request to the last tensor, imports outside, each loader in a process of its own.
Warm: all of it lies in the page cache. Cold: its pages are dropped before each sample (posix_fadvise, and drop_caches where this
runs as root), so the disk of this machine is in the figure. "copied" is the same with each tensor copied into memory that is used
again, as an engine does that fills its parameters: a mapping is then read in full. The others run at their defaults. Rounds are
interleaved.

    python -m benchmarks.bench_weights_local
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import loaders, record, rounds
from testbed.range_bandwidth import parse_bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable

_PEERS = ("safetensors", "runai", "fastsafetensors")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--size", type=parse_bandwidth, default=2e9)
    parser.add_argument("--quick", action="store_true", help="one round of a small checkpoint, nothing is written")
    options = parser.parse_args()
    n, size = (1, 300_000_000) if options.quick else (options.n, int(options.size))
    peers = rounds.peers_python()
    folder = rounds.bucket_with_checkpoint(size) / "bench" / "model"
    document: dict[str, Any] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "), "n": n}
    for state, copies in (("warm", False), ("warm copied", True), ("cold", False)):
        prepare = _drop if state == "cold" else _warm
        contenders = {
            name: functools.partial(
                _sample, prepare, peers if name in _PEERS else Path(sys.executable), name, folder, copies=copies
            )
            for name in ("glowplug", *_PEERS)
        }
        samples = rounds.run(contenders, n)
        rounds.require_equal(samples)
        ours = rounds.column(samples["glowplug"], "wall_s")
        document[state] = {
            "ratios": {f"wall glowplug / {name}": record.ratio(ours, rounds.column(samples[name], "wall_s")) for name in _PEERS},
            "wall_s": {name: record.summary(rounds.column(each, "wall_s")) for name, each in samples.items()},
            "cpu_s": {name: record.summary(rounds.column(each, "cpu_s")) for name, each in samples.items()},
            "peak_bytes": {name: max(sample["peak_bytes"] for sample in each) for name, each in samples.items()},
        }
        print(state, json.dumps(document[state]["ratios"], indent=2), flush=True)
    document["target"] = "warm and cold: wall glowplug / each <= 1.0"
    if not options.quick:
        print(record.write("weights_local", document))


def _sample(prepare: Callable[[Path], None], python: Path, name: str, folder: Path, *, copies: bool) -> dict[str, Any]:
    prepare(folder)
    return loaders.measure(python, name, str(folder), env={}, **({"copies": 1} if copies else {}))


def _warm(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def _drop(folder: Path) -> None:
    os.sync()
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1")


if __name__ == "__main__":
    main()
