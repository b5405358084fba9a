"""The wrapper's own cost: from the moment it is started until the engine's process exists.

Boundary: starts with the spawn of ``glowplug run`` by this benchmark and ends when a process with the engine's command line
is seen (/proc is polled every millisecond); on a hit when all restored files are in place as well, beside which the engine
may have been spawned already. It includes Python's start, imports, the envelope of a real vLLM command in a
real vLLM environment with a local model, and the look-up in a store in a folder; on a hit also verifying the signature,
fetching, unpacking and checking 500 files of 50 MB in all. It does not include anything of the engine, which is killed as
soon as it is seen. Hit and miss alternate. The page cache is warm.

    python -m benchmarks.bench_wrapper --vllm-python PYTHON --model FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard

from benchmarks import record

FILES, SIZE_BYTES = 500, 50_000_000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--vllm-python", default=os.environ.get("GLOWPLUG_VLLM_PYTHON"), required="GLOWPLUG_VLLM_PYTHON" not in os.environ
    )
    parser.add_argument("--model", default=os.environ.get("GLOWPLUG_TINY_MODEL"), required="GLOWPLUG_TINY_MODEL" not in os.environ)
    parser.add_argument("-n", type=int, default=15)
    options = parser.parse_args()
    engine = [options.vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", options.model, "--port", "1"]
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder:
        work = Path(folder)
        store = _published(work, engine)
        miss, hit = [], []
        for number in range(options.n + 1):
            times = [
                _until_spawned(["--store", f"file://{work}/empty", "--cache-dir", f"{work}/miss-{number}"], engine, work),
                _until_spawned(["--store", f"file://{store}", "--cache-dir", f"{work}/hit-{number}"], engine, work, files=FILES),
            ]
            shutil.rmtree(work / f"miss-{number}", ignore_errors=True)
            restored = sum(1 for path in (work / f"hit-{number}").rglob("*.so"))
            assert restored == FILES, f"only {restored} files were restored"
            shutil.rmtree(work / f"hit-{number}")
            if number:  # the first round warms the page cache
                miss.append(times[0])
                hit.append(times[1])
    path = record.write(
        "wrapper",
        {
            "boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
            "miss_s": record.summary(miss),
            "hit_s": record.summary(hit) | {"files": FILES, "bytes": SIZE_BYTES},
            "target": {"miss_s": "median <= 0.35", "hit_s": "median <= 1.0"},
        },
    )
    print(f"miss {record.summary(miss)['median']} s, hit {record.summary(hit)['median']} s  ({path})")


def _published(work: Path, engine: list[str]) -> Path:
    """A store with one generation of 500 files for this command."""
    store, base = work / "store", work / "made"
    words = [sys.executable, "-m", "glowplug", "cache"]
    key = json.loads(subprocess.check_output([*words, "key", "--cache-dir", str(base), "--json", "--", *engine]))["envelope"]
    root = base / key[:16]
    root.mkdir(parents=True, mode=0o700)
    make_tree(root / "inductor", files=FILES, size_bytes=SIZE_BYTES)
    environment = os.environ | {"XDG_CONFIG_HOME": str(work / "config")}
    command = [*words, "capture", "--store", f"file://{store}", "--cache-dir", str(base), "--", *engine]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    shutil.rmtree(base)
    return store


def _until_spawned(options: list[str], engine: list[str], work: Path, *, files: int = 0) -> float:
    # Byte code is written on the first, uncounted round, as an installation has it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["XDG_CONFIG_HOME"] = str(work / "config")
    command = [sys.executable, "-m", "glowplug", "run", "-q", *options, "--", *engine]
    wanted = b"\0".join(word.encode() for word in engine) + b"\0"
    begun = time.perf_counter()
    wrapper = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            for child in Path(f"/proc/{wrapper.pid}/task/{wrapper.pid}/children").read_text().split():
                try:
                    found = Path(f"/proc/{child}/cmdline").read_bytes()
                except OSError:
                    continue
                if found == wanted:
                    live = Path(options[-1])
                    while files and not list(live.glob("*/.glowplug/installed.json")):
                        time.sleep(0.001)
                    elapsed = time.perf_counter() - begun
                    os.killpg(int(child), signal.SIGKILL)
                    return elapsed
            assert wrapper.poll() is None, "the wrapper ended before it started the engine"
            time.sleep(0.001)
    finally:
        wrapper.wait()


def make_tree(folder: Path, *, files: int, size_bytes: int) -> None:
    """Files that look like a compile cache to a compressor: pieces of real shared objects, sizes log-normal."""
    material = b"".join(path.read_bytes() for path in _material())
    chance = random.Random(1)
    weights = [chance.lognormvariate(0, 1) for _ in range(files)]
    for number, weight in enumerate(weights):
        size = int(size_bytes * weight / sum(weights))
        begin = chance.randrange(max(1, len(material) - size))
        path = folder / f"{number % 97:02}" / f"c{number:08}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(material[begin : begin + size])


def _material() -> list[Path]:
    folders = [Path(zstandard.__file__).parent.parent, Path(os.__file__).parent]
    found = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix == ".so" and path.is_file())
    return found[:200]


if __name__ == "__main__":
    main()
