"""A machine that has no threads left, or only a few: loads go on with those there are, and say which limits to look at."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from weights_samples import write_checkpoint

from glowplug.errors import LocalError
from glowplug.threads import begin_some
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.checkpoint.small_files import read_small_files
from glowplug.weights.fetch.crew import each
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.sources.page_cache import warm
from glowplug.weights.streaming import mapped
from glowplug.weights.streaming.stream import stream_bytes

NO_THREADS = """
import threading
real, left = threading.Thread.start, {left}
def start(self):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    real(self)
threading.Thread.start = start
import sys
sys.argv = ["glowplug", *{words}]
from glowplug.cli.main import main
main()
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_checkpoint(folder, files=3, tensors=4, elements=(5_000, 9_000))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def limit(monkeypatch):
    """Allow so many more threads; the system's own words after that."""
    real = threading.Thread.start

    def allow(number, error=RuntimeError):
        left = [number]

        def start(self):
            left[0] -= 1
            if left[0] < 0:
                raise error("can't start new thread")
            real(self)

        monkeypatch.setattr(threading.Thread, "start", start)

    return allow


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_load_goes_on_with_the_one_thread_that_could_be_started(model, limit, error):
    opened = stream_bytes(str(model), settings=FetchSettings(concurrency=8), memory_bytes=-1)
    limit(1, error)
    with opened:
        assert sum(view.nbytes for _, view in opened) == opened.stats().bytes > 0


def test_a_load_that_has_no_thread_at_all_says_which_limits_to_raise(model, limit):
    opened = stream_bytes(str(model), memory_bytes=-1)
    limit(0)
    with pytest.raises(LocalError, match="no thread can be started") as caught, opened:
        pass
    assert "ulimit -u" in caught.value.hint
    assert "pids" in caught.value.hint
    opened.close()  # nothing else to tell


def test_a_crew_does_its_work_with_fewer(limit):
    limit(2)
    assert each(lambda number: number * 2, range(50), threads=16, name="crew") == [number * 2 for number in range(50)]
    limit(0)
    with pytest.raises(LocalError, match="no thread can be started"):
        each(lambda number: number, range(3), threads=2, name="crew")


def test_a_checkpoint_and_its_small_files_are_read_with_one_thread(model, limit):
    source = LocalSource(model)
    limit(1)
    checkpoint = open_checkpoint(source)
    limit(1)
    assert len(checkpoint.files) == 3
    assert "config.json" in read_small_files(source, checkpoint)


def test_mapped_files_are_read_without_anybody_reading_ahead(model, limit, monkeypatch):
    monkeypatch.setattr(mapped, "resident_bytes", lambda *_: 0)
    opened = stream_bytes(str(model))
    limit(0)
    with opened:
        assert opened.mode == "mapped"
        assert sum(view.nbytes for _, view in opened) > 0


def test_warming_needs_no_further_thread(model, limit):
    source = LocalSource(model)
    checkpoint = open_checkpoint(source)
    limit(0)
    assert warm(source, checkpoint).complete


def test_starting_a_thread_twice_is_no_lack_of_threads():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    with pytest.raises(RuntimeError, match="once"):
        begin_some([thread])
    thread.join()


@pytest.mark.parametrize("command", ["stream", "bench", "inspect", "pull"])
def test_commands_end_with_one_error_and_no_traceback(model, tmp_path, command):
    words = ["weights", command, str(model), *([str(tmp_path / "copy")] if command == "pull" else [])]
    words += ["--memory", "full"] if command == "stream" else []
    script = NO_THREADS.format(left=0, words=words)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 1
    assert ended.stderr.startswith("glowplug: no thread can be started")


def test_a_load_without_memory_left_ends_with_one_error(model, monkeypatch, capfd):
    def read_into(*_):
        raise MemoryError

    monkeypatch.setattr(LocalSource, "read_into", read_into)
    with stream_bytes(str(model), memory_bytes=-1) as opened, pytest.raises(LocalError, match="no memory is left"):
        list(opened)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("raised", ["MemoryError", 'OSError(12, "Cannot allocate memory")'])
def test_a_command_without_memory_left_says_so(raised):
    script = f"""
import sys, glowplug.cli.main as cli
def app():
    raise {raised}
cli.app = app
cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("glowplug: no memory is left\n  hint: raise ulimit -v")
