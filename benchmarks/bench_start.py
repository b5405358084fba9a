"""Start to ready of a real vLLM whose model lies behind a network of 150 MB/s, with and without Glowplug.

Boundary: vLLM 0.32 for the CPU on this machine, VLLM_USE_AOT_COMPILE=0; a Llama of 1.1 billion parameters, 2.2 GB
(testbed/big_model.py); testbed/range_server.py in a process of its own with 150 MB/s for all connections together. Ready is from
the spawn of the command to the first good answer of /health, asked every 50 ms. Compared, interleaved: glowplug_warm: `glowplug
run -- vllm serve s3://...` with the compile cache in a store on the local disk; runai_warm: `vllm serve s3://... --load-format
runai_streamer` with its compile cache in place; plain_cold: the same with an empty compile cache (what vLLM does by itself for
s3://); empty_node: `glowplug run -- vllm serve s3://...` with an empty folder for everything; compile cache and weights both come
through the server, at 150 MB/s together; in_place: `vllm serve FOLDER` again with its compile cache in place and the weights in
the page cache. The weights' phase is the report's, from vLLM's first word about loading to its last: waiting for bytes and
copying them; visible_s is the part of the fetch that fell into it. "loading" is what vLLM itself says that loading took. vLLM's
own files lie in the page cache throughout. The tokens of a completion must be the same for all.

    python -m benchmarks.bench_start
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import engine_start, record, rounds
from demo.demo import ENGINE_ENV
from testbed import big_model, vllm_env
from testbed.range_bandwidth import parse_bandwidth
from testbed.range_server import RangeServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

URI = "s3://bench/big"
_LIMITS = ["--served-model-name", "big", "--max-model-len", "256", "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", "{port}"]


@dataclass(frozen=True, slots=True)
class _Node:
    """Where the starts of one benchmark find things, and keep them."""

    work: Path
    model: Path
    vllm: Path
    peers: str
    """The other loaders' site-packages."""
    server: RangeServerProcess

    def env(self, cache: Path, more: Mapping[str, str]) -> dict[str, str]:
        """A start's environment: only its own folders.

        Also for temporary files: Inductor keeps precompiled headers there, and by default its cache.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "GLOWPLUG_", "AWS_", "RUNAI_"))}
        folders = {
            "XDG_CACHE_HOME": str(cache),
            "XDG_CONFIG_HOME": str(self.work / "config"),
            "VLLM_CACHE_ROOT": str(cache / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TMPDIR": str(self.work / "t" / cache.name),  # short: vLLM has sockets there
        }
        Path(folders["TMPDIR"]).mkdir(parents=True, exist_ok=True)
        return kept | ENGINE_ENV | folders | dict(more)

    def glowplug(self, name: str, *, store: str, fresh: bool, seed: bool = False) -> dict[str, Any]:
        """One start under ``glowplug run``; ``seed``: a cold one whose cache is waited for."""
        cache, report = self.work / name, self.work / f"{name}.json"
        if fresh:
            self._clear(cache)
        report.unlink(missing_ok=True)
        options = ["--store", store, "--cache-dir", str(cache / "live"), "--report", str(report), "--quiet"]
        options += [] if seed else ["--no-publish"]
        command = [str(Path(sys.executable).with_name("glowplug")), "run", *options, "--", str(self.vllm), "serve", URI, *_LIMITS]
        env = self.env(cache, self.server.env)
        for variable in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            env.pop(variable)  # the wrapper names them
        published = functools.partial(_is_published, report) if seed else report.exists
        started = engine_start.start(command, env=env, log=self.work / f"{name}.log", model="big", until=published)
        told = json.loads(report.read_text())
        if told["outcome"] != ("miss" if seed else "hit") or not told["weights"] or told["weights"]["error"]:
            raise engine_start.StartFailed(f"{name} was a {told['outcome']} ({told['reason']}), weights: {told['weights']}")
        weights = told["weights"]
        phase = next((phase["seconds"] for phase in told["phases"] if phase["name"] == "weights"), 0.0)
        return {
            "ready_s": started.ready_s,
            "loading_s": started.loading_s,
            "weights_phase_s": phase,
            "visible_s": weights["visible_s"],
            "hidden_s": weights["hidden_s"],
            "waited_s": weights["waited_s"],
            "fetch_s": weights["seconds"],
            "tokens": started.tokens,
        }

    def runai(self, name: str, *, fresh: bool) -> dict[str, Any]:
        """One start with the Run:ai streamer."""
        cache = self.work / name
        if fresh:
            self._clear(cache)
        more = self.server.env | {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "PYTHONPATH": self.peers}
        command = [str(self.vllm), "serve", URI, "--load-format", "runai_streamer", *_LIMITS]
        return self._plain(command, name, self.env(cache, more))

    def in_place(self) -> dict[str, Any]:
        """One start of vLLM with all that it needs on the node."""
        for path in self.model.glob("*.safetensors"):  # into the page cache
            with path.open("rb", buffering=0) as file:
                while file.read(16 << 20):
                    pass
        command = [str(self.vllm), "serve", str(self.model), *_LIMITS]
        return self._plain(command, "in_place", self.env(self.work / "in_place", {}))

    def _clear(self, cache: Path) -> None:
        for folder in (cache, self.work / "t" / cache.name):
            shutil.rmtree(folder, ignore_errors=True)

    def _plain(self, command: list[str], name: str, env: Mapping[str, str]) -> dict[str, Any]:
        started = engine_start.start(command, env=env, log=self.work / f"{name}.log", model="big")
        return {"ready_s": started.ready_s, "loading_s": started.loading_s, "tokens": started.tokens}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--bandwidth", type=parse_bandwidth, default=150e6)
    parser.add_argument("--quick", action="store_true", help="one round, nothing is written")
    parser.add_argument("--keep", type=Path, help="folder for caches and logs that is kept, and whose caches are used again")
    options = parser.parse_args()
    n = 1 if options.quick else options.n
    tiny = vllm_env.tiny_model()
    if tiny is None:
        sys.exit("the tiny model is not made: make testbed")
    model = big_model.big_model(tiny)
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as temporary:
        work = options.keep.absolute() if options.keep else Path(temporary)
        buckets = work / "buckets"
        (buckets / "bench").mkdir(parents=True, exist_ok=True)
        if not (buckets / "bench" / "big").exists():
            (buckets / "bench" / "big").symlink_to(model)
        with RangeServerProcess(buckets, bandwidth=options.bandwidth) as server:
            node = _Node(work, model, rounds.vllm_python().with_name("vllm"), _site_packages(rounds.peers_python()), server)
            samples = _rounds(node, buckets / "store" / "glowplug", n)
    tokens = {sample["tokens"] for each in samples.values() for sample in each}
    ready = {name: rounds.column(each, "ready_s") for name, each in samples.items()}
    document = {
        "boundary": (__doc__ or "").partition("\n\n")[2].rpartition("\n\n")[0].replace("\n", " "),
        "n": n,
        "bandwidth_bytes_per_s": options.bandwidth,
        "ready_s": {name: record.summary(each) for name, each in ready.items()},
        "ratios": {
            "glowplug_warm / runai_warm": record.ratio(ready["glowplug_warm"], ready["runai_warm"]),
            "glowplug_warm / plain_cold": record.ratio(ready["glowplug_warm"], ready["plain_cold"]),
            "empty_node / in_place": record.ratio(ready["empty_node"], ready["in_place"]),
        },
        "weights_s": {
            name: {
                key: record.summary(rounds.column(samples[name], key))
                for key in ("weights_phase_s", "visible_s", "hidden_s", "waited_s", "fetch_s")
            }
            for name in ("glowplug_warm", "empty_node")
        },
        "loading_s": {name: [sample["loading_s"] for sample in each] for name, each in samples.items()},
        "same_tokens": len(tokens) == 1,
        "targets": "glowplug_warm: weights_phase_s <= 2.5, / runai_warm <= 0.75, / plain_cold <= 0.5; empty_node / in_place <= 1.1",
    }
    print(json.dumps(document["ratios"], indent=2), "same tokens:", document["same_tokens"])
    if not options.quick:
        print(record.write("start", document))


def _rounds(node: _Node, store: Path, n: int) -> dict[str, list[dict[str, Any]]]:
    local, remote = f"file://{store}", "s3://store/glowplug"
    if not store.exists():
        print("seeding the store: a cold start under glowplug", flush=True)
        node.glowplug("seed", store=local, fresh=True, seed=True)
    if not (node.work / "in_place").exists():
        print("filling the caches of the starts in place: cold starts of vLLM", flush=True)
        node.in_place()
    if not (node.work / "runai_warm").exists():
        node.runai("runai_warm", fresh=True)
    node.glowplug("glowplug_warm", store=local, fresh=True)
    return rounds.run(
        {
            "glowplug_warm": functools.partial(node.glowplug, "glowplug_warm", store=local, fresh=False),
            "runai_warm": functools.partial(node.runai, "runai_warm", fresh=False),
            "empty_node": functools.partial(node.glowplug, "empty_node", store=remote, fresh=True),
            "in_place": node.in_place,
            "plain_cold": functools.partial(node.runai, "plain_cold", fresh=True),
        },
        n,
    )


def _is_published(report: Path) -> bool:
    return report.exists() and json.loads(report.read_text())["publish"] is not None


def _site_packages(python: Path) -> str:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
