"""vLLM's own engine initialisation, cold against warm from a shared cache, on fresh folders.

Boundary: the figure is what vLLM itself logs: "init engine (profile, create kv cache, warmup model) took X s", so imports
and the weights are outside it; ready is from the wrapper's start to the first good answer of /health. A real vLLM (CPU) with
the tiny model and VLLM_USE_AOT_COMPILE=0. Each cold start has a store, a cache folder and keys of its own, all empty; the
warm start that follows it restores what it published into another empty folder, so every hit is also a hit of a relocated
cache. Cold and warm alternate. The page cache is warm; nothing else should run.

    python -m benchmarks.bench_vllm --vllm-python PYTHON --model FOLDER
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from pathlib import Path

from benchmarks import record
from demo.demo import ENGINE_ENV
from demo.server import Server

_INIT = re.compile(r"init engine .* took ([0-9.]+) s")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--vllm-python", default=os.environ.get("GLOWPLUG_VLLM_PYTHON"), required="GLOWPLUG_VLLM_PYTHON" not in os.environ
    )
    parser.add_argument("--model", default=os.environ.get("GLOWPLUG_TINY_MODEL"), required="GLOWPLUG_TINY_MODEL" not in os.environ)
    parser.add_argument("-n", type=int, default=3)
    options = parser.parse_args()
    init: dict[str, list[float]] = {"cold": [], "warm": []}
    ready: dict[str, list[float]] = {"cold": [], "warm": []}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder:
        for number in range(options.n):
            work = Path(folder) / str(number)
            work.mkdir()
            base = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "GLOWPLUG_"))}
            env = {**base, **ENGINE_ENV, "XDG_CONFIG_HOME": str(work / "config"), "XDG_CACHE_HOME": str(work / "xdg")}
            for kind, outcome in (("cold", "miss"), ("warm", "hit")):
                vllm = Path(options.vllm_python).parent / "vllm"
                store = f"file://{work}/store"
                with Server(
                    vllm=vllm, model=Path(options.model), store=store, folder=work / kind, env=env, say=lambda _: None
                ) as server:
                    server.wait_until_ready()
                    report = server.wait_for_report()
                assert report.outcome == outcome, f"{kind} start was a {report.outcome}: {report.reason}"
                took = _INIT.search(server.log.read_text(errors="replace"))
                assert took, "vLLM did not say how long its initialisation took"
                init[kind].append(float(took[1]))
                ready[kind].append(report.wall_s)
                outcomes.append(report.outcome)
                print(f"{number} {kind}: init {took[1]} s, ready {report.wall_s:.1f} s, {report.outcome}", flush=True)
            shutil.rmtree(work)
    path = record.write(
        "vllm",
        {
            "boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
            "engine_init_s": {kind: record.summary(samples) for kind, samples in init.items()},
            "ready_s": {kind: record.summary(samples) for kind, samples in ready.items()},
            "ratio_engine_init": record.ratio(init["warm"], init["cold"]),
            "ratio_ready": record.ratio(ready["warm"], ready["cold"]),
            "outcomes": outcomes,
            "target": "ratio_engine_init median <= 0.30",
        },
    )
    print(path)


if __name__ == "__main__":
    main()
