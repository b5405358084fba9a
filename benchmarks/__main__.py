"""Runs the benchmarks one after another: ``python -m benchmarks [NAME ...]``, all without a name. ``make bench`` also sets up.

One that fails is reported at the end and does not keep the others from running. ``--quick`` lets those of the weights run once on
little, to see that they work; nothing is written then.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks import rounds
from testbed import vllm_env

BENCHMARKS = {
    "wrapper": "what the wrapper costs until the engine is spawned; 2 minutes",
    "plan": "a plan from 200 headers, 1,000 manifests checked; 1 minute",
    "pack": "packing and restoring a cache against tar; 3 minutes",
    "vllm": "vLLM's initialisation, cold and warm; 8 minutes",
    "http": "weights over HTTP and HTTPS beside the Run:ai streamer, obstore and a C loop; 5 minutes",
    "local": "weights from the local disk beside safetensors, the Run:ai streamer and fastsafetensors; 4 minutes",
    "faults": "weights over a network that fails; 6 minutes",
    "faults_cache": "kills at random steps of publishing and restoring a cache; 7 minutes",
    "fleet": "sixteen starts of one envelope at once; 8 minutes",
    "ranks": "four ranks and a small window; 3 minutes",
    "start": "start to ready of a real vLLM with a 2 GB model behind 150 MB/s, beside runai_streamer; 25 minutes",
}
_OF_THE_WEIGHTS = {"http", "local", "faults", "ranks"}
_MODULES = {name: f"weights_{name}" if name in _OF_THE_WEIGHTS else name for name in BENCHMARKS}
_NEED_VLLM = {"wrapper", "vllm"}
_QUICK = _OF_THE_WEIGHTS | {"start"}


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--list", action="store_true", help="say what there is, and how long it takes")
    parser.add_argument("--quick", action="store_true", help="only see that those of the weights work")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:8} {text}" for name, text in BENCHMARKS.items()))
        return 0
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    failed = []
    for name in options.names or (_QUICK if options.quick else BENCHMARKS):
        command = [sys.executable, "-m", f"benchmarks.bench_{_MODULES[name]}"]
        if options.quick and name in _QUICK:
            command.append("--quick")
        if name in _NEED_VLLM:
            command += ["--vllm-python", str(rounds.vllm_python()), "--model", str(vllm_env.tiny_model())]
        print(f"== {name}: {BENCHMARKS[name]}", flush=True)
        begun = time.monotonic()
        if subprocess.run(command, check=False, cwd=vllm_env.ROOT).returncode:
            failed.append(name)
        print(f"== {name}: {'FAILED' if name in failed else 'done'} after {time.monotonic() - begun:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
