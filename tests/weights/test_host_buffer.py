"""The shared memory: what its readers can and can't do with it, and when it goes."""

from __future__ import annotations

import fcntl
import mmap
import os

import pytest

from glowplug.errors import LocalError
from glowplug.weights.buffer.host_buffer import HostBuffer, document

SIZE = 16 * mmap.PAGESIZE


@pytest.fixture
def buffer():
    made = HostBuffer("glowplug-test", SIZE)
    yield made
    made.close()


@pytest.fixture
def reader(buffer):
    descriptor = buffer.reader()
    yield descriptor
    os.close(descriptor)


def test_a_reader_sees_what_is_written_before_and_after_it_mapped(buffer, reader):
    buffer.view[:5] = b"early"
    with mmap.mmap(reader, SIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        assert mapped[: mmap.PAGESIZE * 2].rstrip(b"\0") == b"early"
        buffer.view[mmap.PAGESIZE : mmap.PAGESIZE + 4] = b"late"
        assert mapped[mmap.PAGESIZE : mmap.PAGESIZE + 4] == b"late"


def test_what_a_reader_writes_stays_its_own(buffer, reader):
    with mmap.mmap(reader, SIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        mapped[:4] = b"mine"
        assert bytes(buffer.view[:4]) == b"\0\0\0\0"


def test_a_reader_can_neither_write_to_it_nor_change_its_size(reader):
    with pytest.raises(PermissionError):
        mmap.mmap(reader, SIZE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument|not permitted"):
        os.write(reader, b"x")
    with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument|not permitted"):
        os.ftruncate(reader, SIZE * 2)


def test_its_size_is_sealed(buffer):
    with pytest.raises(PermissionError):
        os.ftruncate(buffer._file, SIZE // 2)


def test_without_proc_a_reader_still_gets_a_descriptor(buffer, monkeypatch):
    def no_proc(path, *_):
        raise FileNotFoundError(2, "No such file or directory", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_proc)
        descriptor = buffer.reader()
    buffer.view[:2] = b"ok"
    with mmap.mmap(descriptor, SIZE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as mapped:
        assert mapped[:2] == b"ok"
    os.close(descriptor)


def test_memory_is_taken_as_it_is_written_and_given_back_when_it_is_closed():
    buffer = HostBuffer("glowplug-test", 64 * 1024 * 1024)
    assert os.fstat(buffer._file).st_blocks == 0
    buffer.view[: 1024 * 1024] = bytes(1024 * 1024)
    assert os.fstat(buffer._file).st_blocks * 512 >= 1024 * 1024
    descriptor = buffer._file
    buffer.close()
    buffer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_slice_that_somebody_still_holds_does_not_keep_it_from_closing():
    buffer = HostBuffer("glowplug-test", SIZE)
    buffer.view[:3] = b"abc"
    held = buffer.view[:3]
    buffer.close()
    assert bytes(held) == b"abc"


def test_more_than_there_is_room_for_is_an_error_with_a_hint():
    with pytest.raises(LocalError, match="can't make a buffer") as caught:
        HostBuffer("glowplug-test", 1 << 62)
    assert "--host-memory" in caught.value.hint


def test_a_document_can_be_read_by_many_and_changed_by_nobody():
    descriptor = document("glowplug-test", b"[1, 2]")
    try:
        assert os.pread(descriptor, 100, 0) == os.pread(descriptor, 100, 0) == b"[1, 2]"
        assert fcntl.fcntl(descriptor, 1034) & 0x0008  # F_GET_SEALS, F_SEAL_WRITE
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(descriptor, b"x")
    finally:
        os.close(descriptor)
