"""The main job on a real vLLM: a cold start, its cache shared, and a second start from an empty folder that compiles nothing.

Run it with `make demo`; it exits 1 unless the second start used the shared cache and compiled faster. It leaves nothing
behind: keys, caches and the store lie in a temporary folder, which is kept only if the demo fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from demo.server import DemoFailed, Server
from glowplug.timeline.render import compare, glyphs_for, render
from glowplug.units import format_bytes, format_seconds
from testbed import vllm_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.timeline.report import StartReport

# The CPU build of this vLLM can't load its own AOT artefacts again, so it is told to use the other compile cache.
ENGINE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_AOT_COMPILE": "0",
}
_PROMPT = "a glow plug lets a cold engine"
_STARTED = time.monotonic()


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--store", default="file", choices=("file", "s3"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="glowplug-demo-"))
    try:
        code = _show(folder, options.store)
    except DemoFailed as error:
        print(f"\nerror: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("\ninterrupted; the servers are stopped, and nothing is left behind", file=sys.stderr)
        code = 130
    if code == 1:
        print(f"The output, reports and caches are in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _show(folder: Path, store_kind: str) -> int:
    python, model = vllm_env.vllm_python(), vllm_env.tiny_model()
    if python is None or model is None:
        raise DemoFailed("vLLM or the tiny model is not set up; run make demo, which does that first")
    _say("reading vLLM's libraries once, so that neither start waits for a cold disk")
    imports = [str(python), "-c", "import vllm.entrypoints.openai.api_server"]
    subprocess.run(imports, capture_output=True, check=False, env=_environment({}))
    with _store(store_kind, folder) as (store, store_env):
        # A folder of its own for keys: the first publication makes a key and trusts it, and the user's own keys stay out of this.
        env = _environment({**store_env, "XDG_CONFIG_HOME": str(folder / "config")})
        reports = []
        for label, name in (("cold", "first"), ("warm", "second")):
            _say(f"{label} start, from an empty cache folder; output in {folder / name / 'output.log'}")
            reports.append((label, _one_start(Server(python.with_name("vllm"), model, store, folder / name, env, _say))))
    return _conclude(reports)


def _one_start(server: Server) -> StartReport:
    _say("  $ " + " ".join(_shown(word) for word in server.command))
    with server:
        server.wait_until_ready()
        tokens = server.complete(_PROMPT, 16)
        _say(f"  ready, and answered a completion with {tokens} tokens")
        report = server.wait_for_report()
        if report.cache.generation:
            _say(f"  had restored {report.cache.files} files, {format_bytes(report.cache.bytes)}")
        if report.publish and report.publish.state == "published":
            packed = format_bytes(report.publish.pack_bytes)
            _say(f"  published {report.publish.files} files in a pack of {packed}, in {format_seconds(report.publish.seconds)}")
        code = server.stop()
    _say(f"  stopped with SIGTERM, exit code {code}")
    return report


def _conclude(reports: list[tuple[str, StartReport]]) -> int:
    (_, cold), (_, warm) = reports
    glyphs = glyphs_for(sys.stdout)
    print(f"\nThe report of the second start:\n\n{render(warm, glyphs=glyphs)}")
    print(f"Both starts:\n\n{compare(reports, glyphs=glyphs)}", flush=True)
    if cold.publish is None or cold.publish.state != "published":
        print("FAILED: the cold start published nothing", file=sys.stderr)
    elif warm.outcome != "hit":
        print(f"FAILED: the second start was no hit but {warm.outcome}: {warm.reason}", file=sys.stderr)
    elif _compiling_s(warm) >= _compiling_s(cold):
        print("FAILED: the second start's compile phase was no shorter. On a busy machine, run it again", file=sys.stderr)
    else:
        print(f"The second start spent {format_seconds(_compiling_s(cold) - _compiling_s(warm))} less on compiling: {warm.reason}.")
        if warm.wall_s < cold.wall_s:
            print(f"It was ready {format_seconds(cold.wall_s - warm.wall_s)} sooner.")
        else:
            print("It was ready no sooner all the same: this machine was busy with something else meanwhile.")
        return 0
    return 1


def _compiling_s(report: StartReport) -> float:
    """What the cache changes. Imports and the like take as long as the machine's other load lets them."""
    return sum(phase.seconds for phase in report.phases if phase.name == "compile")


@contextlib.contextmanager
def _store(kind: str, folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The store's URL and the variables it needs, while it runs."""
    if kind == "file":
        yield f"file://{folder / 'store'}", {}
        return
    from testbed.seaweedfs import SeaweedFS  # noqa: PLC0415  the other store needs none of it

    _say("starting a real S3 server (SeaweedFS)")
    with SeaweedFS(folder / "s3", bucket="demo") as server:
        yield "s3://demo/glowplug", server.env


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLOWPLUG_")}
    return {**kept, **ENGINE_ENV, **more}


def _shown(word: str) -> str:
    """A command's word as a person would type it: without the folders of this machine."""
    return Path(word).name if word.startswith("/") else word


def _say(text: str) -> None:
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
