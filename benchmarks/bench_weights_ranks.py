"""Several ranks of one node, and a small window: what is read from the server, and what memory it takes.

Boundary: a plain checkpoint of 2.2 GB behind testbed/range_server.py, a wrapper (`glowplug weights serve`, the same feed and
service as inside `glowplug run`) and ranks (processes that use the loader's own client and nothing else), all on this machine. Four
ranks: each takes every tensor and reads one byte of each 4 KiB; counted is what the server sent, headers included, over the size
of the checkpoint. Window: one rank copies every tensor into parameters of its own, with `--host-memory 512MiB`; the peak is of the
sum of both processes' proportional set sizes, asked every 20 ms, so that shared memory counts once.

    python -m benchmarks.bench_weights_ranks
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import record, rounds
from benchmarks.loaders import Delivered
from glowplug.weights.buffer.client import attach
from testbed.range_bandwidth import parse_bandwidth
from testbed.range_server import RangeServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

URI = "s3://bench/model"
WINDOW_BYTES = 512 << 20
ALLOWED_BYTES = 300 << 20
_POLL_S = 0.02


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=parse_bandwidth, default=2e9)
    parser.add_argument("--quick", action="store_true", help="once, a small checkpoint, nothing is written")
    parser.add_argument("--rank", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _rank(*options.rank)
        return
    n, size = (1, 1_200_000_000) if options.quick else (options.n, int(options.size))
    folder = rounds.bucket_with_checkpoint(size)
    whole = sum(path.stat().st_size for path in (folder / "bench" / "model").glob("*.safetensors"))
    document: dict[str, Any] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "), "n": n, "checkpoint_bytes": whole}
    with RangeServerProcess(folder) as server:
        for name, memory, ranks, copies in (
            ("ranks_full", "full", options.ranks, False),
            ("ranks_windowed", str(WINDOW_BYTES), options.ranks, False),
            ("window", str(WINDOW_BYTES), 1, True),
        ):
            samples = [_load(server, memory=memory, ranks=ranks, copies=copies) for _ in range(n)]
            document[name] = {
                "ranks": ranks,
                "times_read": record.summary([sample["sent"] / whole for sample in samples]),
                "wall_s": record.summary(rounds.column(samples, "wall_s")),
                "peak_bytes": max(sample["peak_bytes"] for sample in samples),
            }
            print(name, document[name], flush=True)
    over = document["window"]["peak_bytes"] - WINDOW_BYTES - whole
    document["window"]["beside_window_and_parameters_bytes"] = over
    document["target"] = f"times_read 1.0 (below 1.01); window: beside_window_and_parameters_bytes <= {ALLOWED_BYTES}"
    print(f"beside the window and the parameters: {over / (1 << 20):.0f} MiB")
    if not options.quick:
        print(record.write("weights_ranks", document))


def _load(server: RangeServerProcess, *, memory: str, ranks: int, copies: bool) -> dict[str, Any]:
    server.reset()
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder:
        socket = Path(folder) / "socket"
        env = {**os.environ, **server.env}
        serve = ["weights", "serve", URI, "--socket", str(socket), "--ranks", str(ranks), "--host-memory", memory]
        begun = time.perf_counter()
        wrapper = subprocess.Popen([sys.executable, "-m", "glowplug", *serve], env=env)
        command = [sys.executable, "-m", "benchmarks.bench_weights_ranks", "--rank", str(socket)]
        readers = [
            subprocess.Popen([*command, str(rank), str(ranks), str(int(copies))], stdout=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        try:
            peak = 0
            while any(reader.poll() is None for reader in readers):
                peak = max(peak, sum(map(_proportional_bytes, (wrapper.pid, *(reader.pid for reader in readers)))))
                time.sleep(_POLL_S)
            wall_s = time.perf_counter() - begun
            told = {reader.communicate()[0] for reader in readers}
            if len(told) != 1 or any(reader.returncode for reader in readers):
                sys.exit(f"the ranks did not all get the same: {told}")
            if wrapper.wait(30):
                sys.exit(f"the wrapper ended with {wrapper.returncode}")
        finally:
            _end((wrapper, *readers))
    return {"wall_s": wall_s, "sent": server.stats().body_bytes, "peak_bytes": peak}


def _rank(socket: str, rank: str, ranks: str, copies: str) -> None:
    """A rank: prints how much it got and the sum of the bytes it read."""
    delivered = Delivered()
    attachment = attach(socket, rank=int(rank), ranks=int(ranks), timeout_s=60)
    parameters = []
    for item in attachment.tensors:
        view = attachment.wait(item)
        delivered.view(view)
        if int(copies):
            parameters.append(bytearray(view))
        view.release()
        attachment.release(item)
    attachment.finish()
    print(json.dumps([delivered.tensors, delivered.bytes, delivered.sample]))


def _proportional_bytes(pid: int) -> int:
    """Memory of a process; pages that several share are divided among them. 0 when it has gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _end(processes: Iterable[subprocess.Popen[Any]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
