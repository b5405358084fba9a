"""Local files as a source: pinned to what was listed, read through or past the page cache, byte for byte."""

from __future__ import annotations

import errno
import mmap
import os
import random
import threading

import pytest

from glowplug.errors import LocalError, ObjectChanged, ObjectNotFound, UsageError
from glowplug.units import KIB, MIB
from glowplug.weights.base import Checkpoint, Entry, Retry, WeightFile
from glowplug.weights.sources import direct, page_cache
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.sources.open import open_source


class Meter:
    """Counts; asks for pieces of a given size."""

    def __init__(self, most_bytes=256 * KIB):
        self.most_bytes = most_bytes
        self.pieces = []

    def connected(self, abort):
        abort()

    def advance(self, size_bytes):
        self.pieces.append(size_bytes)


@pytest.fixture
def big(tmp_path):
    """A file of 5 MiB and a bit."""
    content = random.Random(1).randbytes(5 * MIB + 1234)
    (tmp_path / "big.safetensors").write_bytes(content)
    return content


def opened(folder, mode="auto"):
    source = LocalSource(folder, direct=mode)
    return source, {entry.name: entry for entry in source.entries()}


def drop(path):
    """Out of the page cache with it, as after a boot."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path):
    with open(path, "rb") as file:
        return page_cache.resident_bytes(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def memory(size):
    return memoryview(mmap.mmap(-1, size))


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
@pytest.mark.parametrize("in_cache", [True, False])
@pytest.mark.parametrize(
    ("start", "size", "shift"), [(0, 5 * MIB, 0), (4096, 3 * MIB, 4096), (1000, 4 * MIB, 1000), (77, 2 * MIB, 5)]
)
def test_a_range_arrives_whole_whatever_its_alignment(big, tmp_path, mode, in_cache, start, size, shift):
    source, entries = opened(tmp_path, mode)
    if not in_cache:
        drop(tmp_path / "big.safetensors")
    buffer = memory(shift + size + 4096)
    meter = Meter()
    source.read_into(entries["big.safetensors"], start, buffer[shift : shift + size], meter)
    assert buffer[shift : shift + size] == big[start : start + size]
    assert not any(buffer[:shift])
    assert not any(buffer[shift + size :])
    assert sum(meter.pieces) == size
    assert max(meter.pieces) <= meter.most_bytes


def test_the_last_bytes_of_a_file_are_read_past_the_page_cache_too(big, tmp_path):
    source, entries = opened(tmp_path, "always")
    buffer = memory(len(big))
    source.read_into(entries["big.safetensors"], 0, buffer, Meter())
    assert buffer == big


@pytest.fixture
def cold_disk(big, tmp_path):
    path = tmp_path / "big.safetensors"
    assert path.stat().st_size == len(big)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    drop(path)
    if resident(path) != 0:
        pytest.skip("this kernel does not tell what its page cache holds, or keeps it")
    return path


def test_a_cold_range_leaves_the_page_cache_as_it_was(cold_disk, tmp_path):
    source, entries = opened(tmp_path)
    source.read_into(entries["big.safetensors"], 0, memory(5 * MIB), Meter())
    assert resident(cold_disk) == 0


def test_a_range_in_the_page_cache_is_taken_from_there(cold_disk, tmp_path, monkeypatch):
    cold_disk.read_bytes()
    monkeypatch.setattr(direct.DirectReading, "open", lambda *_: pytest.fail("read past the page cache"))
    source, entries = opened(tmp_path)
    source.read_into(entries["big.safetensors"], 0, memory(5 * MIB), Meter())


def test_never_fills_the_page_cache(cold_disk, tmp_path):
    source, entries = opened(tmp_path, "never")
    source.read_into(entries["big.safetensors"], 0, memory(5 * MIB), Meter())
    assert resident(cold_disk) >= 5 * MIB


def test_pieces_below_a_block_go_through_the_page_cache(big, tmp_path):
    source, entries = opened(tmp_path, "always")
    buffer = memory(2 * MIB)
    source.read_into(entries["big.safetensors"], 0, buffer, Meter(most_bytes=1000))
    assert buffer == big[: 2 * MIB]


@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_file_system_without_it_is_read_through_the_page_cache_without_a_word(big, tmp_path, monkeypatch, call):
    real = getattr(os, call)
    tries = []

    def refuse(first, *rest):
        flags = rest[0] if call == "open" else os.O_DIRECT if is_direct(first) else 0
        if flags & os.O_DIRECT:
            tries.append(first)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(first, *rest)

    def is_direct(fd):
        with open(f"/proc/self/fdinfo/{fd}") as facts:
            return any(int(line.split()[1], 8) & os.O_DIRECT for line in facts if line.startswith("flags"))

    source, entries = opened(tmp_path, "always")
    monkeypatch.setattr(os, call, refuse)
    for _ in range(2):
        buffer = memory(4 * MIB)
        source.read_into(entries["big.safetensors"], 0, buffer, Meter())
        assert buffer == big[: 4 * MIB]
    assert len(tries) == 1


def test_a_slow_disk_is_read_through_the_page_cache_from_then_on():
    reading = direct.DirectReading("auto")
    with reading.timed(256 * MIB):
        threading.Event().wait(0.3)
    assert not reading.may
    always = direct.DirectReading("always")
    with always.timed(256 * MIB):
        threading.Event().wait(0.3)
    assert always.may


def test_a_file_that_was_replaced_is_not_read(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old bytes")
    source, entries = opened(tmp_path)
    (tmp_path / "new").write_bytes(b"new bytes")
    os.replace(tmp_path / "new", path)
    with pytest.raises(ObjectChanged, match="has changed") as caught:
        source.read_into(entries["m.safetensors"], 0, memory(9), Meter())
    assert caught.value.object == str(path)
    with pytest.raises(ObjectChanged):
        source.read_small(entries["m.safetensors"], 0, 9)


@pytest.mark.usefixtures("big")
def test_a_file_that_is_rewritten_while_it_is_read_is_noticed(tmp_path):
    path = tmp_path / "big.safetensors"
    source, entries = opened(tmp_path, "never")

    class Rewriting(Meter):
        def advance(self, size_bytes):
            if not self.pieces:
                os.utime(path, ns=(1, 1))
            super().advance(size_bytes)

    with pytest.raises(ObjectChanged):
        source.read_into(entries["big.safetensors"], 0, memory(2 * MIB), Rewriting())


def test_a_read_past_the_end_is_an_error(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"12345")
    source, entries = opened(tmp_path)
    with pytest.raises(ObjectChanged, match="ends at byte 5"):
        source.read_into(entries["m.safetensors"], 3, memory(9), Meter())
    with pytest.raises(ObjectChanged, match="ends at byte 5"):
        source.read_small(entries["m.safetensors"], 3, 9)


def test_a_file_that_is_gone_is_not_found(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"12345")
    source, entries = opened(tmp_path)
    (tmp_path / "m.safetensors").unlink()
    with pytest.raises(ObjectNotFound):
        source.read_into(entries["m.safetensors"], 0, memory(5), Meter())


@pytest.mark.usefixtures("big")
def test_a_mount_that_is_away_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    source, entries = opened(tmp_path, "never")

    def fail(*_):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(Retry, match="Stale file handle"):
        source.read_into(entries["big.safetensors"], 0, memory(100), Meter())


def test_a_folder_with_nothing_in_it_is_not_found(tmp_path):
    with pytest.raises(ObjectNotFound, match="holds no files"):
        LocalSource(tmp_path).entries()


def test_what_is_no_file_is_refused():
    with pytest.raises(LocalError, match="neither a folder nor a file"):
        LocalSource("/dev/null").entries()


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_a_folder_is_named_by_path_or_url(tmp_path, form):
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "x").write_bytes(b"1")
    written = str(folder).replace(" ", "%20") if form != "{}" else folder
    source = open_source(form.format(written), env={})
    assert source.name_of(source.entries()[0]) == str(folder / "x")
    assert source.uri == form.format(written)


def test_a_relative_path_keeps_its_meaning_when_the_folder_changes(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "x").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    source = open_source("m", env={})
    monkeypatch.chdir("/")
    assert source.read_small(source.entries()[0], 0, 1) == b"1"


@pytest.mark.parametrize("uri", ["gs://bucket/model", "", "file://relative/model", "a\0b"])
def test_what_names_no_source_is_wrong_usage(uri):
    with pytest.raises(UsageError):
        open_source(uri, env={})


def test_an_unknown_way_to_read_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match=r"GLOWPLUG_WEIGHTS_DIRECT: .sometimes."):
        open_source(str(tmp_path), env={"GLOWPLUG_WEIGHTS_DIRECT": "sometimes"})


def checkpoint_of(source):
    return Checkpoint(source.uri, tuple(WeightFile(*entry, 0, "") for entry in source.entries()), ())


def test_warming_puts_a_cold_file_into_the_page_cache(cold_disk, tmp_path):
    source = LocalSource(tmp_path)
    stats = page_cache.warm(source, checkpoint_of(source))
    size = cold_disk.stat().st_size
    assert resident(cold_disk) == size
    assert stats.complete
    assert (stats.bytes_read, stats.bytes_there, stats.problem) == (size, 0, "")
    again = page_cache.warm(source, checkpoint_of(source))
    assert (again.bytes_read, again.bytes_there) == (0, size)


@pytest.mark.usefixtures("big")
def test_warming_stays_within_its_bound(tmp_path):
    source = LocalSource(tmp_path)
    stats = page_cache.warm(source, checkpoint_of(source), most_bytes=MIB)
    assert stats.bytes_read + stats.bytes_there == MIB
    assert not stats.complete


@pytest.mark.usefixtures("big")
def test_warming_can_be_called_off(tmp_path):
    stop = threading.Event()
    stop.set()
    source = LocalSource(tmp_path)
    stats = page_cache.warm(source, checkpoint_of(source), stop=stop)
    assert (stats.bytes_read, stats.complete) == (0, False)


def test_warming_what_is_gone_says_so_and_fails_nothing(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"12345")
    source = LocalSource(tmp_path)
    checkpoint = checkpoint_of(source)
    (tmp_path / "m.safetensors").unlink()
    stats = page_cache.warm(source, checkpoint)
    assert "m.safetensors: No such file" in stats.problem
    assert not stats.complete


def test_older_kernels_tell_by_mincore(cold_disk, monkeypatch):
    monkeypatch.setattr(page_cache, "_syscall", lambda: None)
    assert resident(cold_disk) == 0
    content = cold_disk.read_bytes()
    assert resident(cold_disk) == len(content)
    with open(cold_disk, "rb") as file:
        assert page_cache.resident_bytes(file.fileno(), 5000, 10) == 10


@pytest.mark.usefixtures("big")
def test_a_kernel_that_does_not_tell_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "_syscall", lambda: None)
    monkeypatch.setattr(page_cache, "_libc_mincore", lambda: None)
    assert resident(tmp_path / "big.safetensors") is None
    source, entries = opened(tmp_path)
    source.read_into(entries["big.safetensors"], 0, memory(2 * MIB), Meter())
    assert isinstance(entries["big.safetensors"], Entry)
