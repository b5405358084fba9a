"""A checkpoint as a stream of bytes: through small memory, in order, and over as soon as the reader has had enough."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading

import pytest

from glowplug.errors import ObjectNotFound, Unreachable, UsageError
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.streaming.stream import stream, stream_bytes
from testbed.range_faults import Fault
from tests.weights.weights_samples import write_checkpoint

KIB, MIB = 1024, 1024 * 1024
QUICK = FetchSettings(low_speed_window_s=0.6, attempts=3, chunk_bytes=64 * KIB)
URI = "s3://bucket/model"


@pytest.fixture
def model(tmp_path):
    """A folder to serve, and every tensor's bytes, in file order."""
    tensors = write_checkpoint(tmp_path / "bucket" / "model", files=3, tensors=12, elements=(0, 60_000))
    return tmp_path, [(name, dtype, tuple(shape), data) for name, (dtype, shape, data) in tensors.items()]


@pytest.mark.parametrize("memory", [-1, 0, 512 * KIB, None])
@pytest.mark.parametrize("where", ["disk", "server"])
def test_every_tensor_comes_once_in_file_order_with_its_bytes(model, range_server, memory, where):
    folder, expected = model
    server = range_server(folder)
    uri = URI if where == "server" else str(folder / "bucket" / "model")
    with stream_bytes(uri, env=server.env, settings=QUICK, memory_bytes=memory) as streamed:
        found = [(info.name, info.dtype, info.shape, bytes(view)) for info, view in streamed]
        stats = streamed.stats()
    assert found == expected
    assert stats.bytes == sum(len(data) for _, _, _, data in expected)
    assert streamed.plan.is_full == (memory in (-1, None))


def test_zero_memory_means_the_largest_tensor_and_the_environment_is_asked_where_nothing_is_said(model):
    folder, expected = model
    path = str(folder / "bucket" / "model")
    largest = max(len(data) for _, _, _, data in expected)
    for options in ({"memory_bytes": 0}, {"env": {"RUNAI_STREAMER_MEMORY_LIMIT": "0"}}):
        with stream_bytes(path, **options) as streamed:
            assert largest <= streamed.plan.ring_bytes < largest + 4096
            assert [hashlib.sha256(view).digest() for _, view in streamed] == [
                hashlib.sha256(data).digest() for _, _, _, data in expected
            ]


def test_only_what_is_wanted_is_read(model, range_server):
    folder, expected = model
    server = range_server(folder)
    last = expected[-1][0]
    with stream_bytes(URI, env=server.env, settings=QUICK, wanted=lambda tensor: tensor.name == last) as streamed:
        assert [(info.name, bytes(view)) for info, view in streamed] == [(last, expected[-1][3])]
        assert streamed.stats().bytes_read == len(expected[-1][3])


def test_leaving_the_loop_stops_the_fetch_and_frees_everything(model, range_server):
    folder, _ = model
    server = range_server(folder)
    threads = threading.active_count()
    with stream_bytes(URI, env=server.env, settings=QUICK.over(max_bandwidth=500_000), memory_bytes=0) as streamed:
        for _, view in streamed:  # noqa: B007
            break
        del view
    assert streamed.stats().bytes < sum(len(data) for _, _, _, data in model[1])
    assert streamed._ring.closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("glowplug-fetch")]
    assert threading.active_count() - len(server._threads) <= threads


def test_an_error_in_the_loop_passes_through_and_stops_the_fetch(model):
    folder, _ = model
    path = str(folder / "bucket" / "model")
    with pytest.raises(ZeroDivisionError), stream_bytes(path, memory_bytes=0) as streamed:
        assert [1 / 0 for _ in streamed]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("glowplug-fetch")]


def test_a_store_that_fails_raises_where_the_tensors_end(model, range_server):
    folder, expected = model
    server = range_server(folder)
    with stream_bytes(URI, env=server.env, settings=QUICK) as streamed:
        bad = streamed.plan.checkpoint.files[2].name
        server.behaviour.faults = lambda call: Fault("status", status=500, code="InternalError") if call.key.endswith(bad) else None
        names = []
        with pytest.raises(Unreachable, match="given up"):
            names.extend(info.name for info, _ in streamed)
    assert names == [name for name, *_ in expected][: len(names)]
    server.behaviour.faults = None


def test_a_stream_is_read_once(model):
    folder, expected = model
    with stream_bytes(str(folder / "bucket" / "model")) as streamed:
        assert len(list(streamed)) == len(expected)
        with pytest.raises(ValueError, match="once"):
            next(iter(streamed))


def test_what_can_not_be_opened_is_said_before_anything_is_fetched(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ObjectNotFound):
        stream_bytes(str(tmp_path / "empty"))
    with pytest.raises(UsageError):
        stream_bytes("gopher://x/y")


def test_without_torch_tensors_are_refused_with_a_way_out(model):
    with pytest.raises(ImportError):
        __import__("torch")
    with pytest.raises(UsageError, match="torch is not installed") as caught:
        stream(str(model[0] / "bucket" / "model"))
    assert "stream_bytes" in caught.value.hint


PEAK = """
import json, sys
from glowplug.weights.streaming.stream import stream_bytes
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
with stream_bytes(sys.argv[1], memory_bytes=int(sys.argv[2]), env={"GLOWPLUG_WEIGHTS_DIRECT": "never"}) as streamed:
    before = peak()
    total = sum(view.nbytes + view[-1] * 0 for _, view in streamed)
print(json.dumps([total, peak() - before]))
"""


def test_memory_stays_within_the_formula_however_large_the_checkpoint_is(tmp_path):
    tensors = write_checkpoint(tmp_path / "m", files=2, tensors=16, elements=(500_000, 550_000))
    size = sum(len(data) for _, _, data in tensors.values())
    assert size > 60 * MIB
    ring = 8 * MIB
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PEAK, str(tmp_path / "m"), str(ring)],
        capture_output=True, text=True, check=True, env={**os.environ},
    )  # fmt: skip
    total, grown = json.loads(ended.stdout)
    assert total == size
    assert grown <= ring + 8 * MIB
