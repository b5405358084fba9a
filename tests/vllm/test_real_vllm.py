"""The whole of it on a real vLLM: cold, published to a real S3 server, restored elsewhere; and a restore that is not used.

What these tests don't prove: anything about a GPU, or how long a start takes (benchmarks/ measures that).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.demo import ENGINE_ENV
from demo.server import Server
from testbed.vllm_env import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.s3, pytest.mark.timeout(1200)]

OTHER_GLOWPLUG = ROOT / (".venv-3.13" if sys.version_info < (3, 13) else ".venv-3.11") / "bin" / "glowplug"


@pytest.fixture(scope="module")
def world(tmp_path_factory, seaweedfs, vllm_python, tiny_model):
    """Starts servers that share one user, one S3 bucket and nothing else."""
    folder = tmp_path_factory.mktemp("real-vllm")
    base = {name: value for name, value in os.environ.items() if not name.startswith(("GLOWPLUG_", "VLLM_", "XDG_", "AWS_"))}
    env = {**base, **seaweedfs.env, **ENGINE_ENV, "XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "xdg")}

    def start(name, *, store="s3://glowplug/real", extra=None, glowplug=None):
        return Server(
            vllm=vllm_python.parent / "vllm",
            model=tiny_model,
            store=store,
            folder=folder / name,
            env={**env, **(extra or {})},
            say=lambda line: print(f"{name}: {line}"),
            glowplug=glowplug,
        )

    return start


@pytest.fixture(scope="module")
def cold(world):
    """The first start: compiles, publishes, answers a request, and ends on SIGTERM."""
    with world("cold") as server:
        server.wait_until_ready()
        report = server.wait_for_report()
        server.tokens = server.complete("a glow plug", 4)
    return server, report


def test_a_cold_start_compiles_publishes_and_serves(cold):
    server, report = cold
    assert report.outcome == "miss"
    assert server.tokens > 0
    assert report.engine.version == "0.32.0"
    assert {"envelope", "restore", "spawn", "imports", "weights", "compile", "ready"} <= {phase.name for phase in report.phases}
    assert report.publish.state == "published"
    headers = list(Path(report.cache.root).glob("inductor_headers/*.h"))
    assert report.publish.files == report.cache.files_new + 1 + len(headers)  # vLLM's model info is no compiled code either
    assert 0 <= report.unattributed_s < report.wall_s / 2
    assert server.process.returncode == 0
    assert json.loads((server.folder / "report.json").read_text())["exit_code"] == 0


def test_a_second_start_from_an_injected_folder_on_another_python_hits(cold, world, tmp_path):
    """Nothing of Glowplug is installed where vLLM is; the carried Python differs from vLLM's where the machine has another."""
    glowplug = OTHER_GLOWPLUG if OTHER_GLOWPLUG.exists() else Path(sys.executable).with_name("glowplug")
    injected = tmp_path / "injected"
    subprocess.run([glowplug, "inject", injected], check=True)
    moved = injected.rename(tmp_path / "moved")
    with world("warm", glowplug=moved / "bin" / "glowplug") as server:
        server.wait_until_ready()
        report = server.wait_for_report()
        assert server.complete("a glow plug", 4) > 0
    first = cold[1]
    assert report.outcome == "hit"
    assert report.cache.generation == first.publish.generation
    assert report.cache.files == first.publish.files
    assert report.cache.files_new == 0
    assert report.cache.files_read > 0
    assert report.cache.saved_s is not None
    assert report.publish.state == "nothing new"
    assert report.cache.root != first.cache.root  # another folder, and still a hit: vLLM's key does not hold its path


def test_what_vllm_cannot_load_again_is_called_unused(world):
    """With its default, vLLM on the CPU saves an artefact that it can't load, and compiles again in spite of the restore."""
    default = {"VLLM_USE_AOT_COMPILE": "1"}
    with world("aot-cold", extra=default) as server:
        server.wait_until_ready()
        first = server.wait_for_report()
    assert first.outcome == "miss"
    assert first.publish.state == "published"
    with world("aot-warm", extra=default) as server:
        server.wait_until_ready()
        second = server.wait_for_report()
    assert second.cache.generation == first.publish.generation
    assert second.outcome == "unused"
    assert "VLLM_USE_AOT_COMPILE=0" in second.reason
    assert second.publish.state == "skipped"
