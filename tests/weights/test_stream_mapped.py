"""Local checkpoints as mapped files: nothing is copied, nothing is written, nothing is read too far ahead."""

from __future__ import annotations

import os
import threading

import pytest

from glowplug.errors import ObjectChanged, ObjectNotFound
from glowplug.weights.sources.page_cache import resident_bytes
from glowplug.weights.streaming import mapped
from glowplug.weights.streaming.mapped import MappedStream
from glowplug.weights.streaming.stream import ByteStream, stream_bytes
from tests.weights.weights_samples import write_checkpoint, write_safetensors

MIB = 1024 * 1024


@pytest.fixture
def model(tmp_path):
    """A folder, and each tensor's bytes by name."""
    tensors = write_checkpoint(tmp_path / "model", files=3, tensors=12, elements=(0, 60_000))
    return tmp_path / "model", {name: data for name, (_, _, data) in tensors.items()}


def ahead_threads():
    return [thread for thread in threading.enumerate() if thread.name == "glowplug-ahead"]


def test_views_outlive_the_stream_and_a_write_to_one_stays_in_this_process(model):
    folder, expected = model
    files = {path: path.read_bytes() for path in folder.iterdir()}
    with stream_bytes(str(folder)) as streamed:
        assert isinstance(streamed, MappedStream)
        kept = {info.name: view for info, view in streamed}
    assert {name: bytes(view) for name, view in kept.items()} == expected
    name = max(kept, key=lambda name: kept[name].nbytes)
    kept[name][:4] = b"\1\2\3\4"
    assert bytes(kept[name]) == b"\1\2\3\4" + expected[name][4:]
    assert {path: path.read_bytes() for path in folder.iterdir()} == files


@pytest.mark.parametrize("options", [{"memory_bytes": 0}, {"memory_bytes": -1}, {"env": {"GLOWPLUG_WEIGHTS_DIRECT": "always"}}])
def test_whoever_asks_for_a_buffer_or_for_direct_reads_gets_them(model, options):
    folder, expected = model
    with stream_bytes(str(folder), **options) as streamed:
        assert isinstance(streamed, ByteStream)
        assert {info.name: bytes(view) for info, view in streamed} == expected


def test_a_file_that_is_written_to_under_the_load_is_an_error_and_no_mixture(model):
    folder, expected = model
    with stream_bytes(str(folder)) as streamed:
        first = min(folder.glob("*.safetensors"))
        content = first.read_bytes()
        steps = iter(streamed)
        next(steps)
        first.write_bytes(content[:-4] + b"\0\0\0\1")
        rest = []
        with pytest.raises(ObjectChanged, match=first.name):
            rest.extend(steps)
    assert len(rest) < len(expected) - 1


def test_a_file_that_is_gone_is_named(model):
    folder, _ = model
    with stream_bytes(str(folder)) as streamed:
        last = max(folder.glob("*.safetensors"))
        last.unlink()
        with pytest.raises(ObjectNotFound, match=last.name):
            list(streamed)


def test_what_is_not_in_the_page_cache_is_read_ahead_of_the_reader_but_not_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "AHEAD_BYTES", 8 * MIB)
    size = 24 * MIB
    tensors = {f"t{number}": ("U8", (size // 2,), os.urandom(size // 2)) for number in range(2)}
    path = write_safetensors(tmp_path / "model.safetensors", tensors)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_bytes(fd, 0, size) != 0:
            pytest.skip("this file system does not let go of its pages")
        with stream_bytes(str(path)) as streamed:
            steps = iter(streamed)
            info, view = next(steps)
            for thread in ahead_threads():
                thread.join(0.2)  # whoever may go on has done so by now
            assert streamed.stats().bytes_read <= 2 * 8 * MIB + 8 * MIB
            assert bytes(view) == tensors[info.name][2]
            assert [bytes(view) for _, view in steps] == [tensors["t1"][2]]
            stats = streamed.stats()
    finally:
        os.close(fd)
    assert stats.requests > 0
    assert stats.bytes == size


def test_leaving_the_loop_ends_the_threads_that_read_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "AHEAD_BYTES", 0)
    monkeypatch.setattr(mapped, "resident_bytes", lambda *_: 0)  # as if nothing were there
    path = write_safetensors(tmp_path / "model.safetensors", {f"t{n}": ("U8", (10 * MIB,), bytes(10 * MIB)) for n in range(3)})
    with stream_bytes(str(path)) as streamed:
        steps = iter(streamed)
        next(steps)
        assert ahead_threads()
        steps.close()
    assert not ahead_threads()
