"""Streaming a checkpoint over HTTP and HTTPS: ours, the Run:ai model streamer, obstore, and a bare receive loop in C.

Boundary: a plain checkpoint of 2.2 GB in three files (45 tensors of 8 KB to 117 MB), served by testbed/range_server.py in a
process of its own over loopback, from the page cache, by sendfile; the server shares the two cores with the client that is
measured. Each loader runs in a process of its own (benchmarks/loaders.py says what it has to do): every tensor delivered, one
byte of each 4 KiB of it read; from the first request to the last tensor, imports outside. The Run:ai streamer is tried with every
setting listed under "swept", and its two quickest go into the rounds; what counts is the better one. obstore takes one range a
tensor, from threads. The C loop sends the ranges that ours has chosen, over as many connections, and receives into memory that it
uses again; it neither signs nor delivers. CPU seconds are of the client's process, all threads, user and system. Rounds are
interleaved.

    python -m benchmarks.bench_weights_http
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import loaders, record, rounds
from testbed import certs
from testbed.range_bandwidth import parse_bandwidth
from testbed.range_server import HOST, RangeServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

URI = "s3://bench/model"
_RUNAI = [(concurrency, chunk) for chunk in (8 << 20, 32 << 20) for concurrency in (4, 8, 16, 32)]
_OBSTORE = (2, 4, 8, 16)
_SOURCE = Path(__file__).with_name("receive_loop.c")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--size", type=parse_bandwidth, default=2e9)
    parser.add_argument("--quick", action="store_true", help="one round of a small checkpoint, nothing is written")
    options = parser.parse_args()
    n, size = (1, 300_000_000) if options.quick else (options.n, int(options.size))
    peers, folder = rounds.peers_python(), rounds.bucket_with_checkpoint(size)
    document: dict[str, Any] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "), "n": n}
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as work:
        loop = _compile(Path(work))
        made = certs.make(Path(work) / "certificates", [HOST])
        with RangeServerProcess(folder) as server:
            runai, obstore, swept = _sweep(peers, server, _RUNAI[:2] if options.quick else _RUNAI)
            document["swept"] = swept
            contenders = _contenders(peers, server, runai, obstore)
            first = contenders["glowplug"]()  # tells the ranges, and warms the page cache
            contenders["c_loop"] = functools.partial(
                _receive, loop, server.port, _ranges(folder, first["chunk_bytes"]), first["concurrency"]
            )
            document["http"] = _figures(rounds.run(contenders, n), runai)
        with RangeServerProcess(folder, certificates=made) as server:
            document["https"] = _figures(rounds.run(_contenders(peers, server, runai, obstore), n), runai)
    document["targets"] = {
        "http": "cpu_per_gb glowplug / c_loop <= 1.15; gb_per_s glowplug / runai >= 2.5; cpu_per_gb glowplug / runai <= 0.25",
        "https": "cpu_per_gb glowplug / runai <= 0.7; glowplug / obstore <= 0.7",
    }
    print(json.dumps({kind: document[kind]["ratios"] for kind in ("http", "https")}, indent=2))
    if not options.quick:
        print(record.write("weights_http", document))


def _sweep(
    peers: Path, server: RangeServerProcess, settings: Sequence[tuple[int, int]]
) -> tuple[dict[str, dict[str, str]], int, list[dict[str, Any]]]:
    """The two quickest settings of the Run:ai streamer, obstore's quickest, and what all took."""
    rows: list[dict[str, Any]] = []
    by_time: list[tuple[float, str, dict[str, str]]] = []
    for concurrency, chunk in settings:
        env = {"RUNAI_STREAMER_CONCURRENCY": str(concurrency), "RUNAI_STREAMER_CHUNK_BYTESIZE": str(chunk)}
        result = loaders.measure(peers, "runai", URI, env=_env(server) | env)
        by_time.append((result["wall_s"], f"runai c{concurrency} {chunk >> 20} MiB", env))
        rows.append({"loader": by_time[-1][1], "wall_s": round(result["wall_s"], 3), "cpu_s": round(result["cpu_s"], 3)})
        print("sweep:", rows[-1], flush=True)
    obstore: list[tuple[float, int]] = []
    for concurrency in _OBSTORE if len(settings) > 2 else _OBSTORE[1:2]:
        result = loaders.measure(peers, "obstore", URI, env=_env(server), concurrency=concurrency)
        obstore.append((result["wall_s"], concurrency))
        rows.append({"loader": f"obstore c{concurrency}", "wall_s": round(result["wall_s"], 3), "cpu_s": round(result["cpu_s"], 3)})
        print("sweep:", rows[-1], flush=True)
    return {name: env for _, name, env in sorted(by_time, key=lambda row: row[0])[:2]}, min(obstore)[1], rows


def _contenders(
    peers: Path, server: RangeServerProcess, runai: dict[str, dict[str, str]], obstore: int
) -> dict[str, Callable[[], dict[str, Any]]]:
    env = _env(server)
    return {
        "glowplug": functools.partial(loaders.measure, sys.executable, "glowplug", URI, env=env),
        **{name: functools.partial(loaders.measure, peers, "runai", URI, env=env | own) for name, own in runai.items()},
        "obstore": functools.partial(loaders.measure, peers, "obstore", URI, env=env, concurrency=obstore),
    }


def _env(server: RangeServerProcess) -> dict[str, str]:
    return server.env | {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}


def _figures(samples: dict[str, list[dict[str, Any]]], runai: dict[str, dict[str, str]]) -> dict[str, Any]:
    rounds.require_equal({name: each for name, each in samples.items() if name != "c_loop"})
    best = max(runai, key=lambda name: record.summary(rounds.gb_per_s(samples[name]))["median"])
    ours = samples["glowplug"]
    ratios: dict[str, Any] = {
        "gb_per_s glowplug / runai": record.ratio(rounds.gb_per_s(ours), rounds.gb_per_s(samples[best])),
        "cpu_per_gb glowplug / runai": record.ratio(rounds.cpu_per_gb(ours), rounds.cpu_per_gb(samples[best])),
        "cpu_per_gb glowplug / obstore": record.ratio(rounds.cpu_per_gb(ours), rounds.cpu_per_gb(samples["obstore"])),
        "gb_per_s glowplug / obstore": record.ratio(rounds.gb_per_s(ours), rounds.gb_per_s(samples["obstore"])),
    }
    if "c_loop" in samples:
        ratios["cpu_per_gb glowplug / c_loop"] = record.ratio(rounds.cpu_per_gb(ours), rounds.cpu_per_gb(samples["c_loop"]))
        ratios["gb_per_s glowplug / c_loop"] = record.ratio(rounds.gb_per_s(ours), rounds.gb_per_s(samples["c_loop"]))
    return {
        "runai": best,
        "ratios": ratios,
        "gb_per_s": {name: record.summary(rounds.gb_per_s(each)) for name, each in samples.items()},
        "cpu_s_per_gb": {name: record.summary(rounds.cpu_per_gb(each)) for name, each in samples.items()},
        "glowplug": {key: ours[-1][key] for key in ("concurrency", "chunk_bytes", "requests", "peak_bytes")},
    }


def _compile(work: Path) -> Path:
    program = work / "receive_loop"
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, _SOURCE], check=True)
    return program


def _ranges(folder: Path, chunk_bytes: int) -> str:
    from glowplug.weights.checkpoint import opening as checkpoint  # noqa: PLC0415  after the arguments were read
    from glowplug.weights.fetch.plan import make_plan  # noqa: PLC0415  the same

    found = checkpoint.open(str(folder / "bench" / "model"))
    plan = make_plan(found, chunk_bytes=chunk_bytes)
    return "\n".join(f"/bench/model/{found.files[piece.file].name} {piece.start} {piece.end}" for piece in plan.ranges)


def _receive(program: Path, port: int, ranges: str, concurrency: int) -> dict[str, Any]:
    output = subprocess.run([program, str(port), str(concurrency)], input=ranges, text=True, capture_output=True, check=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


if __name__ == "__main__":
    main()
