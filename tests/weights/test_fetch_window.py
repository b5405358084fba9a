"""The window, what is told of progress, the cap on bandwidth, local files, and the end of a fetch."""

from __future__ import annotations

import os
import threading
import time

import pytest

from glowplug.errors import LocalError, ObjectChanged
from glowplug.weights.base import Checkpoint, Plan
from glowplug.weights.fetch.bandwidth import Bandwidth
from glowplug.weights.fetch.fetcher import Fetcher
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.sources.s3 import S3Source
from testbed.range_faults import SILENT, STALL
from tests.weights.fetches import KIB, MIB, QUICK, Load, Model, fetch_threads, loading

URL = "s3://bucket/m"


@pytest.fixture
def model(tmp_path):
    return Model(tmp_path, files=2)


def test_nothing_is_fetched_past_the_window_until_readers_are_done(model, range_server):
    server = range_server(model.served)
    with loading(model, S3Source(URL, env=server.env), memory_bytes=512 * KIB) as running:
        ring = running.plan.ring_bytes
        running.fetcher.wait(ring - 64 * KIB, 10)
        time.sleep(0.3)  # time enough to do what must not be done
        assert running.fetcher.complete <= ring
        assert running.fetcher.stats().blocked_s > 0.2
        running.read()
        blocked_s = running.fetcher.stats().blocked_s
        time.sleep(0.05)
        assert running.fetcher.stats().blocked_s == blocked_s


def test_a_window_delivers_every_byte_to_a_slow_reader(model, range_server):
    server = range_server(model.served)
    with loading(model, S3Source(URL, env=server.env), memory_bytes=300 * KIB, chunk_bytes=16 * KIB) as running:
        assert running.plan.ring_bytes < running.plan.length // 4
        assert running.read().bytes == model.size_bytes


def test_progress_is_told_in_order_and_ends_at_the_plans_length(model, range_server):
    server = range_server(model.served)
    with loading(model, S3Source(URL, env=server.env), chunk_bytes=16 * KIB) as running:
        running.fetcher.wait(running.plan.length, 30)
    assert running.told == sorted(set(running.told))
    assert running.told[-1] == running.plan.length
    assert running.errors == []


def test_waiting_ends_at_its_time_out_without_an_error(model, range_server):
    server = range_server(model.served, faults=lambda call: STALL if call.ranged and call.end - call.start > 1 else None)
    with loading(model, S3Source(URL, env=server.env), QUICK.over(low_speed_window_s=60.0)) as running:
        assert running.fetcher.wait(1, 0.1) == 0


def test_closing_wakes_who_waits(model, range_server):
    server = range_server(model.served, faults=lambda call: SILENT if call.ranged and call.end - call.start > 1 else None)
    caught = []
    with loading(model, S3Source(URL, env=server.env), QUICK.over(low_speed_window_s=60.0)) as running:

        def wait():
            try:
                running.fetcher.wait(1)
            except LocalError as error:
                caught.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        running.fetcher.close()
        waiting.join(5)
        assert len(caught) == 1
    assert running.errors == []


def test_a_fetch_that_was_never_started_can_be_closed(model, range_server):
    load = Load(model, S3Source(URL, env=range_server(model.served).env))
    load.fetcher.close()
    load.fetcher.start()
    assert not fetch_threads()


def test_the_threads_end_by_themselves_when_all_is_there(model, range_server):
    with loading(model, S3Source(URL, env=range_server(model.served).env)) as running:
        running.read()
        deadline = time.monotonic() + 5
        while fetch_threads() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not fetch_threads()


def test_an_empty_plan_is_complete_at_once():
    plan = Plan(Checkpoint("nothing", (), ()), (), (), 4096, 0)
    fetcher = Fetcher(LocalSource("/"), plan, memoryview(bytearray(4096)), QUICK)
    fetcher.start()
    assert fetcher.wait(0, 1) == 0
    fetcher.close()


def test_memory_that_is_too_small_is_refused(model, range_server):
    load = Load(model, S3Source(URL, env=range_server(model.served).env))
    with pytest.raises(ValueError, match="smaller"):
        Fetcher(load.source, load.plan, memoryview(bytearray(10)), QUICK)


# --- the cap


def test_a_cap_on_bandwidth_is_kept(model, range_server):
    cap = 8 * MIB
    with loading(model, S3Source(URL, env=range_server(model.served).env), QUICK.over(max_bandwidth=cap)) as running:
        stats = running.read()
    assert stats.bytes == 4 * MIB
    # A tenth of a second may come at once.
    assert stats.seconds > (4 * MIB - cap / 10) / cap * 0.9
    assert stats.stalls == 0


def test_what_is_taken_is_paid_for_in_time():
    now = [100.0]
    cap = Bandwidth(1000, clock=lambda: now[0])
    assert cap.take(100) == pytest.approx(0.1)
    assert cap.take(500) == pytest.approx(0.6)
    now[0] += 0.5
    assert cap.take(1000) == pytest.approx(1.1)
    now[0] += 60.0
    assert cap.take(1100) == pytest.approx(1.0)  # a quiet minute saves up no more than a tenth of a second


@pytest.mark.parametrize("bytes_per_s", [1, 10**6, 10**8, 10**10])
def test_pieces_fit_the_cap(bytes_per_s):
    cap = Bandwidth(bytes_per_s)
    assert 16 * KIB <= cap.piece_bytes <= MIB
    assert cap.most_requests >= 2


def test_few_requests_share_a_narrow_cap(model, range_server):
    server = range_server(model.served)
    with loading(model, S3Source(URL, env=server.env), QUICK.over(max_bandwidth=6 * MIB)) as running:
        running.read()
    assert server.stats().most_at_once <= 2


# --- local files


def test_local_files_are_read_with_every_byte(model):
    with loading(model, LocalSource(model.path), memory_bytes=700 * KIB) as running:
        stats = running.read()
    assert stats.bytes == model.size_bytes
    assert stats.hedges == 0
    assert "glowplug-fetch-watch" not in fetch_threads()


def test_a_local_file_that_is_replaced_under_the_load_is_an_error(model):
    with loading(model, LocalSource(model.path), memory_bytes=300 * KIB) as running:
        running.fetcher.wait(1, 10)
        path = model.path / model.names[1]
        other = path.with_name("other")
        other.write_bytes(os.urandom(path.stat().st_size))
        os.replace(other, path)
        with pytest.raises(ObjectChanged, match=r"model-1\.safetensors"):
            running.read()
