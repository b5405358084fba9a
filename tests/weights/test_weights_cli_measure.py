"""``glowplug weights stream`` and ``bench``: what they read, what they count, and which settings they recommend."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.cache.keys import PrivateKey
from glowplug.errors import IncompatibleError, LocalError, UsageError
from glowplug.units import MIB
from glowplug.weights.bench import grid as benching
from glowplug.weights.bench.grid import Bench, Cell, Setting, bench
from glowplug.weights.bench.measure import _look_at as look_at
from glowplug.weights.bench.plot import check_plot, plot_bench
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.sources.local import LocalSource


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measure") / "model"
    write_checkpoint(folder, files=2, tensors=6, elements=(50_000, 90_000))
    return folder


@pytest.fixture
def glowplug(tmp_path):
    return lambda *words, **env: weights(*words, env={"HOME": str(tmp_path), "COLUMNS": "80"} | env)


def size_of(model):
    return open_checkpoint(LocalSource(model)).size_bytes


# --- stream


def test_stream_delivers_every_tensor_and_counts_what_it_cost(glowplug, model):
    ended = glowplug("stream", model, "--json", "--chunk", "256KiB", "--concurrency", "3", "--memory", "64MiB")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["tensors"] == 12
    assert document["bytes"] == document["bytes_read"] == size_of(model)
    assert document["requests"] >= size_of(model) // (256 * 1024)
    assert document["concurrency"] == 3
    assert 1 <= document["most_at_once"] <= 3
    assert document["cpu_s"] > 0
    assert document["verified"] is False


def test_stream_through_a_window_holds_no_more_than_it_was_given(glowplug, model):
    document = json.loads(glowplug("stream", model, "--json", "--memory", "512KiB").stdout)
    assert document["mode"] == "windowed"
    assert document["ring_bytes"] < size_of(model) // 2
    assert document["bytes"] == size_of(model)


def test_stream_for_a_person_fits_80_columns(glowplug, model):
    ended = glowplug("stream", model)
    assert ended.returncode == 0
    assert "GB/s" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_stream_verifies_a_seal_and_stops_at_a_wrong_byte(glowplug, model, tmp_path):
    copy = tmp_path / "copy"
    assert glowplug("pull", model, copy).returncode == 0
    key = PrivateKey(b"a" * 32)
    (tmp_path / "a.key").write_text(key.pem)
    (tmp_path / "a.key").chmod(0o600)
    env = {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "a.key")}
    assert glowplug("seal", copy, **env).returncode == 0
    assert json.loads(glowplug("stream", copy, "--json", **env).stdout)["verified"] is True
    path = copy / "model-00002-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    ended = glowplug("stream", copy, **env)
    assert ended.returncode == 1
    assert str(path) in ended.stderr
    assert "sealed" in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stream", "/no/such/model"], "/no/such/model"),
        (["stream", "gopher://x"], "gopher"),
        (["bench", "/no/such/model"], "/no/such/model"),
    ],
)
def test_what_is_not_there_is_one_line(glowplug, words, says):
    ended = glowplug(*words)
    assert ended.returncode in {1, 2}
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--memory", "lots"], "--memory"),
        (["--chunk", "8 apples"], "--chunk"),
        (["--max-bandwidth", "fast"], "--max-bandwidth"),
        (["--concurrency", "0"], "--concurrency"),
    ],
)
def test_an_option_that_can_not_be_is_named(glowplug, model, words, says):
    ended = glowplug("stream", model, *words)
    assert ended.returncode == 2
    assert says in ended.stderr


@pytest.mark.parametrize("option", ["--chunk", "--max-bandwidth"])
def test_a_value_that_is_too_small_is_said_of_its_option(glowplug, model, option):
    ended = glowplug("stream", model, option, "1")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"glowplug: {option}: 1 is too small\n")


def test_a_chunk_that_can_not_be_kept_is_said(glowplug, model):
    ended = glowplug("stream", model, "--chunk", "900kB", "--memory", "1MiB")
    assert "bytes, not the 900000 asked for: the buffer must hold several" in ended.stdout
    kept = glowplug("stream", model, "--chunk", "200kB", "--memory", "full")
    assert "asked for" not in kept.stdout
    mapped = glowplug("stream", model, "--chunk", "200kB")
    assert "--chunk" in mapped.stdout


def test_a_page_of_every_tensor_is_read():
    pages = memoryview(bytes(4096) + b"\1" + bytes(4095) + bytes(10))
    assert look_at(pages) == 1
    assert look_at(memoryview(b"")) == 0


@pytest.mark.parametrize("words", [["bench", "--seconds", "0.1"], ["stream"], ["inspect", "--tensors"], ["inspect", "--json"]])
def test_output_in_ascii_is_no_reason_to_end(tmp_path, words):
    folder = tmp_path / os.fsdecode(b"mod\xc3\xa8le-\xff")
    write_checkpoint(folder, files=1, tensors=2)
    command = [sys.executable, "-m", "glowplug", "weights", words[0], str(folder), *words[1:]]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    if words[-1] == "--json":
        assert json.loads(ended.stdout)["uri"] == str(folder)
    if words[0] == "bench":
        assert "#" in ended.stdout


@pytest.mark.parametrize("words", ["inspect", "inspect --tensors", "inspect --json", "stream"])
def test_output_that_nobody_reads_ends_as_sigpipe_does(model, words):
    program = "import time; from glowplug.cli.main import main; time.sleep(0.3); main()"
    command = shlex.join([sys.executable, "-c", program, "weights", *words.split(), str(model)])
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 141
    assert ended.stderr == ""


# --- bench


@pytest.mark.parametrize("limit", ["0", "1"])
def test_bench_refuses_a_limit_that_leaves_nothing(glowplug, model, limit):
    ended = glowplug("bench", model, "--limit", limit)
    assert ended.returncode == 2
    assert "nothing to measure" in ended.stderr


def test_bench_refuses_a_model_without_a_byte(glowplug, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    ended = glowplug("bench", tmp_path / "empty")
    assert ended.returncode in {1, 2}
    assert "nothing to measure" in ended.stderr


def test_bench_tries_every_setting_and_says_what_to_use(glowplug, model):
    ended = glowplug("bench", model, "--seconds", "0.1")
    assert ended.returncode == 0, ended.stderr
    assert "auto" in ended.stdout
    assert "use: " in ended.stdout
    assert "why: " in ended.stdout
    assert max(map(len, ended.stdout.splitlines()[2:])) <= 80


def test_bench_as_json_has_each_cell_and_the_variables_to_set(glowplug, model):
    document = json.loads(glowplug("bench", model, "--seconds", "0.1", "--json").stdout)
    assert {cell["concurrency"] for cell in document["cells"]} >= {1, None}
    assert all(len(cell["gb_per_s"]) == document["rounds"] >= 1 for cell in document["cells"])
    assert "GLOWPLUG_WEIGHTS_CHUNK_SIZE" in document["use"]["environment"]
    settings = FetchSettings.from_env(document["use"]["environment"])
    assert settings.chunk_bytes == document["use"]["chunk_bytes"]
    assert settings.concurrency == document["use"]["concurrency"]


class Reading(LocalSource):
    def __init__(self, path):
        super().__init__(path)
        self.read = []

    def read_into(self, file, start, view, meter):
        self.read.append((file.name, start, view.nbytes))
        super().read_into(file, start, view, meter)


def test_no_cell_reads_more_than_the_limit_and_the_cells_take_turns(model):
    source = Reading(model)
    told = []
    found = bench(
        source,
        open_checkpoint(source),
        settings=FetchSettings(concurrency=7),
        seconds=0.05,
        limit_bytes=512 * 1024,
        concurrencies=(1, 2),
        chunks=(64 * 1024, 128 * 1024),
        progress=told.append,
    )
    readings = 1 + found.rounds * len(found.cells)
    assert sum(size for _, _, size in source.read) <= readings * 512 * 1024
    assert len({start for _, start, _ in source.read}) > 8  # not the same bytes over and over
    assert next(line for line in told if "round 1" in line).endswith("1 at once of 64.0 KiB")
    assert all(cell.settled == (cell.setting.concurrency or 8) for cell in found.cells)  # 7 of the environment is not in the way


def of(medians, default=8 * MIB):
    cells = tuple(Cell(Setting(number, chunk), [value] * 3) for (number, chunk), value in medians.items())
    return Bench(cells, MIB, default, 3, 1.0)


def test_the_default_is_chosen_where_it_is_as_good_as_any():
    found = of({(None, 8 * MIB): 0.92, (None, 32 * MIB): 0.99, (16, 8 * MIB): 1.0, (1, 4 * MIB): 0.95})
    assert found.is_default


def test_else_the_number_is_still_left_to_find_by_itself_where_that_will_do():
    found = of({(None, 8 * MIB): 0.5, (None, 16 * MIB): 0.92, (None, 32 * MIB): 0.99, (16, 8 * MIB): 1.0})
    assert found.chosen.setting == (None, 32 * MIB)
    assert not found.is_default


def test_else_the_fewest_requests_are_chosen():
    found = of({(None, 8 * MIB): 0.5, (16, 8 * MIB): 1.0, (8, 4 * MIB): 0.93, (8, 16 * MIB): 0.96, (4, 32 * MIB): 0.7})
    assert found.chosen.setting == (8, 4 * MIB)
    assert found.best.setting == (16, 8 * MIB)


def test_a_noisy_machine_is_told():
    cells = (Cell(Setting(None, 8 * MIB), [0.4, 0.9, 1.0, 1.6]),)
    assert Bench(cells, MIB, 8 * MIB, 4, 1.0).spread > 0.3
    assert Bench((Cell(Setting(None, 8 * MIB), [1.0]),), MIB, 8 * MIB, 1, 1.0).spread == 0


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_shows_every_size_and_every_number(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    cells = {(number, chunk): 0.1 * (number or 3) for number in (1, 2, None) for chunk in benching.CHUNKS}
    path = tmp_path / f"bench{suffix}"
    check_plot(path)
    plot_bench(of(cells), path, title="s3://bucket/model")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(data) > 10_000


def test_a_plot_that_can_not_be_written_leaves_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "bench.svg"
    path.mkdir()
    with pytest.raises(LocalError, match=r"bench\.svg: Is a directory") as caught:
        plot_bench(of({(1, MIB): 1.0}), path, title="m")
    assert "bench again, or name another file" in caught.value.hint
    assert list(tmp_path.iterdir()) == [path]


def test_a_plot_that_could_not_be_drawn_is_refused_first(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        check_plot(tmp_path / "bench.pdf")
    with pytest.raises(LocalError, match="folder"):
        check_plot(tmp_path / "none" / "bench.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(IncompatibleError, match="matplotlib"):
        check_plot(tmp_path / "bench.svg")
