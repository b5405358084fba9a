"""A whole load of a node: a real store, a real fetch, ranks as real processes; with a wrapper and without."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glowplug.weights.buffer.client import attach
from glowplug.weights.buffer.feed import Feed
from glowplug.weights.buffer.host_buffer import HostBuffer
from glowplug.weights.buffer.memory import MemoryChoice
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.sources.open import open_source
from testbed import range_faults
from testbed.range_faults import Fault
from tests.weights.ranks import Rank
from tests.weights.weights_samples import write_checkpoint

KIB, MIB = 1024, 1024 * 1024
URI = "s3://bucket/model"
FULL = MemoryChoice("full", 0, "in a test")
QUICK = FetchSettings(low_speed_window_s=0.6, attempts=3)


@pytest.fixture
def model(tmp_path):
    """A folder to serve, and the digest of every tensor in it."""
    tensors = write_checkpoint(tmp_path / "bucket" / "model", files=3, tensors=12, elements=(1, 60_000))
    return tmp_path, {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in tensors.items()}


def windowed(size_bytes):
    return MemoryChoice("windowed", size_bytes, "in a test")


def is_mapped():
    return "glowplug-weights" in Path("/proc/self/maps").read_text()


@contextlib.contextmanager
def feeding(source, *, settings=QUICK, memory=FULL, ranks=1, **options):
    feed = Feed.open(source, open_checkpoint(source), settings=settings, memory=memory, ranks=ranks, **options)
    try:
        feed.start()
        yield feed
    finally:
        feed.close()
        source.close()


@pytest.mark.parametrize("huge_pages", [False, True])
def test_a_full_buffer_is_written_or_received_into_as_its_pages_are(model, range_server, monkeypatch, huge_pages):
    folder, expected = model
    written = []
    real = HostBuffer.write
    monkeypatch.setattr(HostBuffer, "has_huge_pages", huge_pages)
    monkeypatch.setattr(HostBuffer, "write", lambda self, offset, data: (written.append(data.nbytes), real(self, offset, data)))
    server = range_server(folder)
    with feeding(open_source(URI, env=server.env)) as feed:
        rank = attach(feed.socket, rank=0, ranks=1, timeout_s=30)
        assert {item.name: hashlib.sha256(rank.wait(item)).hexdigest() for item in rank.tensors} == expected
        rank.finish(skipped=0)
        rank.close()
    assert bool(written) != huge_pages


@pytest.mark.parametrize("memory", [FULL, windowed(MIB)], ids=["full", "windowed"])
def test_four_ranks_get_every_byte_and_the_server_is_read_once(model, range_server, memory):
    folder, expected = model
    server = range_server(folder)
    source = open_source(URI, env=server.env)
    checkpoint = open_checkpoint(source)
    read_before = server.stats().body_bytes
    feed = Feed.open(source, checkpoint, settings=QUICK.over(hedge=False), memory=memory, ranks=4)
    feed.start()
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(Rank(feed.socket, number, 4)) for number in range(4)]
        assert [rank.end()["digests"] for rank in ranks] == [expected] * 4
    assert feed.wait_done(20)
    stats = feed.stats()
    feed.close()
    source.close()
    assert server.stats().body_bytes - read_before == checkpoint.size_bytes == stats.fetch.bytes
    assert stats.mode == memory.mode
    assert sorted(rank.rank for rank in stats.ranks) == [0, 1, 2, 3]
    assert stats.begun_s <= stats.ended_s
    assert (stats.uri, stats.error) == (URI, "")


def test_a_store_that_fails_for_good_is_said_to_the_rank_in_its_own_words(model, range_server):
    folder, _ = model
    server = range_server(folder)
    source = open_source(URI, env=server.env)
    with feeding_later(source, server) as feed, Rank(feed.socket) as rank:
        told = rank.end()
        assert told["error"] == "LoadFailed"
        assert "s3://bucket/model/model-0000" in told["message"]
        assert feed.stats().error
        assert feed.stats().error in told["message"]


@contextlib.contextmanager
def feeding_later(source, server):
    """A feed whose server fails once the headers were read."""
    checkpoint = open_checkpoint(source)
    server.behaviour.faults = lambda _: Fault("status", status=500, code="InternalError")
    feed = Feed.open(source, checkpoint, settings=QUICK, memory=FULL, ranks=1)
    feed.start()
    try:
        yield feed
    finally:
        feed.close()
        source.close()


def test_in_full_mode_the_memory_is_freed_once_the_ranks_are_done_and_the_wrapper_lives_on(model):
    folder, expected = model
    with feeding(LocalSource(folder / "bucket" / "model")) as feed:
        assert is_mapped()
        with Rank(feed.socket) as rank:
            assert rank.end()["digests"] == expected
        assert feed.wait_done(20)
        deadline = time.monotonic() + 20
        while is_mapped():
            assert time.monotonic() < deadline, "the buffer is still mapped"
            time.sleep(0.01)


def test_closing_in_the_middle_leaves_no_thread_no_descriptor_and_no_memory(model, range_server):
    folder, _ = model
    server = range_server(folder)
    server.behaviour.latency_s = 0.05
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    source = open_source(URI, env=server.env)
    with feeding(source, settings=QUICK.over(max_bandwidth=1_000_000)) as feed, Rank(feed.socket) as rank:
        assert rank.hear() == {"attached": "full"}
        feed.close()
        assert rank.end()["error"] == "BufferLost"
    wait_until(lambda: threading.active_count() - len(server._threads) <= threads)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) - 2 * len(server._open) <= descriptors)
    assert not is_mapped()


def wait_until(what):
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Feeder:
    """``glowplug weights serve`` as a process."""

    def __init__(self, uri, socket, *options, env=None, stdin=subprocess.PIPE):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "glowplug", "weights", "serve", str(uri), "--socket", str(socket), *options],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, timeout_s=30):
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err


@pytest.fixture
def socket_path(tmp_path):
    return tmp_path / "private" / "socket"


def test_without_a_wrapper_one_process_serves_all_ranks_and_ends_with_them(model, socket_path):
    folder, expected = model
    with (
        Feeder(folder / "bucket" / "model", socket_path, "--ranks", "2", "--host-memory", "1MiB", "--json") as feeder,
        Rank(socket_path, 0, 2) as first,
        Rank(socket_path, 1, 2) as second,
    ):
        assert first.hear() == {"attached": "windowed"}
        assert first.end()["digests"] == second.end()["digests"] == expected
        code, out, err = feeder.end()
    assert code == 0
    assert json.loads(out)["ranks"] == 2
    assert "weights: windowed, 1.0 MiB of" in err
    assert not socket_path.exists()


def test_a_window_keeps_the_serving_process_small(tmp_path, socket_path):
    tensors = write_checkpoint(tmp_path / "m", files=2, tensors=16, elements=(600_000, 650_000))
    size = sum(len(data) for _, _, data in tensors.values())
    with Feeder(tmp_path / "m", socket_path, "--host-memory", "16MiB") as feeder, Rank(socket_path, hold_at_end=True) as rank:
        assert rank.hear() == {"attached": "windowed"}
        assert rank.hear() == {"holds": -1}
        status = dict(line.split(":", 1) for line in Path(f"/proc/{feeder.process.pid}/status").read_text().splitlines())
        rank.go_on()
        assert len(rank.end()["digests"]) == 32
    assert int(status["RssShmem"].split()[0]) * KIB <= 16 * MIB
    assert int(status["VmHWM"].split()[0]) * KIB < size - 16 * MIB


def test_of_several_processes_started_at_once_one_serves(model, socket_path):
    folder, expected = model
    with contextlib.ExitStack() as stack:
        feeders = [stack.enter_context(Feeder(folder / "bucket" / "model", socket_path, "--json")) for _ in range(3)]
        rank = stack.enter_context(Rank(socket_path, hold_at_once=True))
        assert rank.hear() == {"attached": "full"}
        wait_until(lambda: sum(feeder.process.poll() is None for feeder in feeders) == 1)
        rank.go_on()
        assert rank.end()["digests"] == expected
        ended = [feeder.end() for feeder in feeders]
    assert [code for code, _, _ in ended] == [0, 0, 0]
    assert sorted(json.loads(out)["served"] for _, out, _ in ended) == [False, False, True]


def test_a_serving_process_ends_when_the_one_that_started_it_has_died(model, socket_path):
    folder, _ = model
    with Feeder(folder / "bucket" / "model", socket_path) as feeder:
        wait_until(socket_path.exists)
        feeder.process.stdin.close()
        feeder.process.stdin = None
        assert feeder.end()[0] == 0
    assert not socket_path.exists()


def test_a_rank_that_is_attached_is_served_although_the_starter_has_died(model, socket_path):
    folder, expected = model
    with Feeder(folder / "bucket" / "model", socket_path) as feeder, Rank(socket_path, hold_at_once=True) as rank:
        assert rank.hear() == {"attached": "full"}
        feeder.process.stdin.close()
        feeder.process.stdin = None
        with pytest.raises(subprocess.TimeoutExpired):
            feeder.process.wait(1.2)
        rank.go_on()
        assert rank.end()["digests"] == expected
        assert feeder.end()[0] == 0


def test_a_serving_process_whose_ranks_are_all_killed_ends(model, socket_path):
    folder, _ = model
    with Feeder(folder / "bucket" / "model", socket_path) as feeder, Rank(socket_path, die_at=3) as rank:
        assert rank.end() == {"attached": "full"}
        assert feeder.end()[0] == 0


def test_without_a_pipe_as_standard_input_nobody_is_taken_for_dead(model, socket_path):
    folder, expected = model
    with Feeder(folder / "bucket" / "model", socket_path, stdin=subprocess.DEVNULL) as feeder:
        wait_until(socket_path.exists)
        with pytest.raises(subprocess.TimeoutExpired):
            feeder.process.wait(1.2)
        with Rank(socket_path) as rank:
            assert rank.end()["digests"] == expected
        assert feeder.end()[0] == 0


def test_nobody_comes_and_the_serving_process_does_not_stay(model, socket_path):
    from glowplug.weights.buffer.serving import serve

    folder, _ = model
    stats = serve(str(folder / "bucket" / "model"), socket_path, ranks=1, settings=QUICK, patience_s=0.1)
    assert stats.ranks == ()
    assert not socket_path.exists()


def test_a_checkpoint_that_is_not_there_is_the_serving_process_own_error(tmp_path, socket_path):
    (tmp_path / "empty").mkdir()
    with Feeder(tmp_path / "empty", socket_path) as feeder:
        code, _, err = feeder.end()
    assert code == 1
    assert "holds no files" in err
    assert not socket_path.exists()


def test_a_serving_process_whose_store_fails_tells_its_rank_and_ends_with_an_error(model, range_server, socket_path):
    folder, _ = model
    server = range_server(folder)
    server.behaviour.faults = lambda call: range_faults.RESET if call.ranged and call.start > 300 * KIB else None
    env = {**server.env, "GLOWPLUG_WEIGHTS_CHUNK_SIZE": "65536", "RUNAI_STREAMER_S3_MAX_RETRIES": "1"}
    with Feeder(URI, socket_path, env=env) as feeder, Rank(socket_path) as rank:
        told = rank.end()
        code, _, err = feeder.end()
    assert told["error"] == "LoadFailed"
    assert code == 1
    assert "given up" in err


def test_a_serving_process_that_is_killed_leaves_no_lock_and_no_socket_in_the_way(model, socket_path):
    folder, expected = model
    with Feeder(folder / "bucket" / "model", socket_path) as feeder:
        wait_until(socket_path.exists)
        feeder.process.send_signal(signal.SIGKILL)
        feeder.process.wait()
    assert socket_path.exists()
    with open(f"{socket_path}.serving") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with Feeder(folder / "bucket" / "model", socket_path), Rank(socket_path) as rank:
        assert rank.end()["digests"] == expected
