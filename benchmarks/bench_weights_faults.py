"""Loads over a network that fails: 1 % of the ranges stall or are reset, and what that costs.

Boundary: a plain checkpoint of 1 GB behind testbed/range_server.py in a process of its own, at 400 MB/s that all connections
share. Of the answers to ranges, 0.5 % send half of the body and then nothing, and 0.5 % send half and then RST, drawn with a
fixed seed. One load: from the first request to the last tensor, every tensor delivered and one byte of each 4 KiB of it read,
default settings. A clean load from a second server, the same but without faults, follows every fourth faulty one. A failure is a
load that raises, or that delivers other bytes than the first clean one.

    python -m benchmarks.bench_weights_faults
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from benchmarks import record, rounds
from benchmarks.loaders import Delivered
from glowplug.errors import GlowplugError
from glowplug.weights.streaming.stream import stream_bytes
from testbed.range_bandwidth import parse_bandwidth
from testbed.range_server import RangeServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

_FAULTS = {"stall": 0.005, "reset": 0.005}
_CLEAN_EVERY = 4


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100, help="faulty loads")
    parser.add_argument("--size", type=parse_bandwidth, default=1e9)
    parser.add_argument("--bandwidth", type=parse_bandwidth, default=400e6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few loads of a small checkpoint, nothing is written")
    options = parser.parse_args()
    n, size = (8, 300_000_000) if options.quick else (options.n, int(options.size))
    folder = rounds.bucket_with_checkpoint(size)
    faulty: list[dict[str, Any]] = []
    clean: list[dict[str, Any]] = []
    failures: list[str] = []
    with (
        RangeServerProcess(folder, bandwidth=options.bandwidth) as good,
        RangeServerProcess(folder, bandwidth=options.bandwidth, faults=_FAULTS, seed=options.seed) as bad,
    ):
        expected = _load(good.env)  # also loads what is imported late
        for number in range(n):
            try:
                faulty.append(_load(bad.env))
                if any(faulty[-1][key] != expected[key] for key in ("bytes", "tensors", "sample")):
                    failures.append(f"load {number}: other bytes")
            except GlowplugError as error:
                failures.append(f"load {number}: {error}")
            if number % _CLEAN_EVERY == 0:
                clean.append(_load(good.env))
            if faulty:
                print(f"load {number + 1} of {n}: {faulty[-1]['wall_s']:.2f} s, clean {clean[-1]['wall_s']:.2f} s", flush=True)
        done = bad.stats()
    slow, fast = rounds.column(faulty, "wall_s"), rounds.column(clean, "wall_s")
    ratio = record.summary(slow)["median"] / record.summary(fast)["median"]
    document = {
        "boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        "loads": n,
        "failures": failures,
        "faults_done": dict(done.faults),
        "requests": done.requests,
        "retries": sum(sample["retries"] for sample in faulty),
        "hedges": sum(sample["hedges"] for sample in faulty),
        "faulty_s": record.summary(slow),
        "clean_s": record.summary(fast),
        "ratio_of_medians": round(ratio, 3),
        "target": "no failure, ratio_of_medians <= 1.3",
    }
    print(json.dumps({key: document[key] for key in ("failures", "faults_done", "retries", "hedges", "ratio_of_medians")}))
    if not options.quick:
        print(record.write("weights_faults", document))


def _load(env: Mapping[str, str]) -> dict[str, Any]:
    delivered = Delivered()
    begun = time.perf_counter()
    with stream_bytes("s3://bench/model", env=env) as stream:
        for _, view in stream:
            delivered.view(view)
        stats = stream.stats()
    wall_s = time.perf_counter() - begun
    counts = {"bytes": delivered.bytes, "tensors": delivered.tensors, "sample": delivered.sample}
    return {"wall_s": wall_s, "retries": stats.retries, "hedges": stats.hedges, **counts}


if __name__ == "__main__":
    main()
