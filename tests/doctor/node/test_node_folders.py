"""What can be done in a folder, on real file systems: a file is tried, and nothing stays."""

from __future__ import annotations

import os
import threading

import pytest

from glowplug.doctor.node.disks import Disks
from glowplug.doctor.node.folders import look_at, write_refused
from glowplug.doctor.node.machine import find_devices, find_user
from glowplug.doctor.node.mounts import read_mounts
from glowplug.units import MIB


def look(path, *, write=True):
    mounts = read_mounts()
    return look_at(str(path), root="/", mounts=mounts, disks=Disks("/", mounts), write=write)


def test_a_good_folder_refuses_nothing_and_nothing_stays(tmp_path):
    found = look(tmp_path)
    assert (found.refused, found.tried, found.path) == ((), str(tmp_path), str(tmp_path))
    assert found.size_bytes >= found.free_bytes > 0
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_tried_above_and_not_made(tmp_path):
    found = look(tmp_path / "a" / "b")
    assert (found.refused, found.tried) == ((), str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "cache").write_text("")
    assert look(tmp_path / "cache").refusal("write") == "not a directory"
    assert look(tmp_path / "cache" / "below").refusal("write") == "not a directory"


def test_a_folder_that_is_only_read_is_not_written(tmp_path):
    before = tmp_path.stat().st_mtime_ns
    assert look(tmp_path, write=False).refused == ()
    assert tmp_path.stat().st_mtime_ns == before


def test_a_memory_file_system_is_recognised(tmpfs):
    folder = tmpfs("size=64m,nr_inodes=1000")
    found = look(folder)
    assert (found.mount.fs, found.mount.point, found.refused) == ("tmpfs", str(folder), ())
    assert (found.size_bytes, found.inodes) == (64 * MIB, 1000)
    assert found.free_bytes <= 64 * MIB


def test_code_can_t_be_mapped_where_it_is_noexec(tmpfs):
    found = look(tmpfs("size=1m,noexec"))
    assert found.refused == (("map", "operation not permitted"),)
    assert os.listdir(found.path) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [("ro", "read-only file system"), ("size=8k", "no space left on device"), ("nr_inodes=1", "no space left on device")],
)
def test_a_file_system_that_takes_no_file_says_why(tmpfs, options, reason):
    folder = tmpfs(options)
    if options.startswith("size"):
        (folder / "full").write_bytes(b"x" * 8192)
    found = look(folder)
    assert found.refused == (("write", reason),)
    assert [name for name in os.listdir(folder) if name != "full"] == []


def test_another_user_is_refused_what_only_root_may(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.seteuid(4242)
    try:
        refused, user, devices = write_refused(str(tmp_path)), find_user({}), find_devices({}, str(tmp_path))
    finally:
        os.seteuid(0)
    assert refused == "permission denied"
    assert (user.uid, user.name, user.home_refused, user.temporary) == (4242, "", "there is none", "/tmp")
    assert devices.closed == ()
    assert os.listdir(tmp_path) == []


def test_mountpoint_for_s3_is_not_even_tried(machine):
    machine.mount("/cache", "fuse", "mountpoint-s3", "0:99")
    mounts = read_mounts(str(machine))
    before = (machine.root / "cache").stat().st_mtime_ns
    found = look_at("/cache/live", root=str(machine), mounts=mounts, disks=Disks(str(machine), mounts))
    assert found.refused == (("rename", "Mountpoint for Amazon S3 can't rename"),)
    assert (machine.root / "cache").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("entries", "hollow"),
    [
        ((), False),
        (("vllm/torch_compile_cache/", "triton/"), True),
        (("0123/.glowplug/lock", "0123/vllm/"), True),
        (("vllm/a/b.py", "triton/"), False),
        (("file",), False),
        ((".glowplug/lock",), False),
    ],
    ids=str,
)
def test_a_folder_of_folders_without_a_file_is_hollow(tmp_path, entries, hollow):
    for entry in entries:
        (tmp_path / entry).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / entry).mkdir() if entry.endswith("/") else (tmp_path / entry).write_text("")
    assert look(tmp_path).hollow is hollow


def test_a_folder_too_large_to_look_through_is_not_called_hollow(tmp_path):
    for number in range(2100):
        (tmp_path / str(number)).mkdir()
    assert look(tmp_path).hollow is False


def test_a_file_system_that_does_not_answer_is_given_up(tmp_path, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr("glowplug.doctor.node.folders._LONGEST_S", 0.1)
    monkeypatch.setattr("glowplug.doctor.node.folders.tempfile.mkdtemp", lambda **_: answers.wait(30) and str(tmp_path / "work"))
    try:
        found = look(tmp_path)
        assert (found.refused, found.mount.point) == (
            (("write", "its file system does not answer"),),
            look(tmp_path, write=False).mount.point,
        )
        assert write_refused(str(tmp_path)) == "its file system does not answer"
    finally:
        answers.set()


def test_write_refused_is_about_one_folder(tmp_path):
    assert write_refused(str(tmp_path)) == ""
    assert write_refused(str(tmp_path / "none")) == "no such file or directory"
    assert os.listdir(tmp_path) == []
