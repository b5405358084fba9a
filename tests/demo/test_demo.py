"""`make demo STORE=s3`, as a newcomer runs it: a real vLLM, a real S3 server, two starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.vllm_env import ROOT


@pytest.mark.vllm
@pytest.mark.s3
@pytest.mark.timeout(1500)  # two starts of a real engine on whatever machine this is
def test_the_second_start_of_the_demo_hits_is_faster_and_leaves_nothing_behind(
    vllm_python: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("demo")  # a short name: vLLM makes sockets there, whose paths have at most 107 characters
    monkeypatch.setenv("GLOWPLUG_VLLM_PYTHON", str(vllm_python))
    monkeypatch.setenv("GLOWPLUG_TINY_MODEL", str(tiny_model))
    monkeypatch.setenv("TMPDIR", str(folder))
    command = [sys.executable, "-m", "demo.demo", "--store", "s3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was compiled" in done.stdout
    assert [path.name for path in folder.iterdir() if path.name.startswith("glowplug-demo-")] == []
