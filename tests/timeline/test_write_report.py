"""A reader of the report file sees the old report or the new one, whoever owns the file and whatever it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from glowplug.errors import LocalError
from glowplug.timeline import write as writing
from glowplug.timeline.report import CacheReport, EngineInfo, StartReport
from glowplug.timeline.write import write_report


def report(wall_s=10.0):
    return StartReport("hit", "it loaded what was there", wall_s, (), CacheReport("7a" * 32), EngineInfo("vllm", "0.32.0"))


def test_the_file_holds_the_report_and_nothing_else_is_left(tmp_path):
    write_report(tmp_path / "report.json", report())
    assert json.loads((tmp_path / "report.json").read_text()) == report().to_json()
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_second_report_replaces_the_first(tmp_path):
    write_report(tmp_path / "report.json", report(1.0))
    write_report(tmp_path / "report.json", report(2.0))
    assert json.loads((tmp_path / "report.json").read_text())["wall_s"] == 2.0


def test_a_sidecar_of_another_user_may_read_it(tmp_path):
    old = os.umask(0o022)
    try:
        write_report(tmp_path / "report.json", report())
    finally:
        os.umask(old)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o644


def test_a_link_keeps_pointing_at_its_file(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "report.json")
    write_report(tmp_path / "link.json", report())
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real" / "report.json").read_text())["outcome"] == "hit"


def test_standard_output_gets_the_report_when_it_is_a_pipe():
    """/dev/stdout is a link to a link to a pipe that has no name."""
    read, write = os.pipe()
    try:
        write_report(Path(f"/dev/fd/{write}"), report())
        assert json.loads(os.read(read, 1 << 16))["outcome"] == "hit"
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.timeout(10)
def test_a_pipe_that_nobody_reads_does_not_hold_the_start(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LocalError) as caught:
        write_report(tmp_path / "pipe", report())
    assert caught.value.hint == "nobody reads this pipe"


def test_a_file_that_is_a_mount_is_written_in_place(tmp_path, monkeypatch):
    """Kubernetes mounts /dev/termination-log as a file: renaming over it fails with EBUSY."""
    target = tmp_path / "termination-log"
    target.write_text("")
    inode = target.stat().st_ino

    def busy(_source, _target):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(writing.os, "replace", busy)
    write_report(target, report())
    assert json.loads(target.read_text())["outcome"] == "hit"
    assert target.stat().st_ino == inode
    assert os.listdir(tmp_path) == ["termination-log"]


@pytest.mark.parametrize("name", ["missing/report.json", "."])
def test_a_place_that_can_t_be_written_is_named(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(LocalError) as caught:
        write_report(path, report())
    assert str(path) in caught.value.message
    assert caught.value.object == str(path)
    assert caught.value.hint
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_report(tmp_path, monkeypatch):
    target = tmp_path / "report.json"
    write_report(target, report(1.0))

    def full(_source, _target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(LocalError, match="No space left"):
        write_report(target, report(2.0))
    assert json.loads(target.read_text())["wall_s"] == 1.0
    assert os.listdir(tmp_path) == ["report.json"]
