"""A temporary file lives as long as its owner, and no longer than until the next sweep."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys

import pytest

from glowplug import temporary

ALL = re.compile(".*")
_OWNER = (
    "import sys, time\nfrom glowplug import temporary\ntemporary.create(sys.argv[1])\nprint('made', flush=True)\ntime.sleep(60)"
)


def test_a_file_is_swept_once_its_owner_has_been_killed(tmp_path):
    path = tmp_path / "file"
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"made\n"
        temporary.sweep(tmp_path, ALL)
        assert path.exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    temporary.sweep(tmp_path, ALL)
    assert not path.exists()


def test_a_file_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "file"
    real = fcntl.flock
    swept = []

    def flock(descriptor, operation):
        if not swept:
            swept.append(path)
            temporary.sweep(tmp_path, ALL)
            assert not path.exists()
        real(descriptor, operation)

    monkeypatch.setattr(temporary.fcntl, "flock", flock)
    with open(temporary.create(path), "wb"):
        assert swept
        assert os.stat(path).st_nlink == 1
        temporary.sweep(tmp_path, ALL)
        assert path.exists()


def test_only_files_that_are_called_so_are_swept_and_nothing_through_a_link(tmp_path):
    kept = tmp_path / "kept.txt"
    kept.touch()
    (tmp_path / "link.tmp").symlink_to(kept)
    (tmp_path / "folder.tmp").mkdir()
    (tmp_path / "left.tmp").touch()
    temporary.sweep(tmp_path, re.compile(r".*\.tmp"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.tmp", "kept.txt", "link.tmp"]


def test_a_name_that_is_taken_is_an_error_and_no_folder_is_none(tmp_path):
    (tmp_path / "file").write_bytes(b"others")
    with pytest.raises(FileExistsError):
        temporary.create(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"others"
    temporary.sweep(tmp_path / "nowhere", ALL)


# --- who sweeps


def test_a_report_that_a_killed_start_left_half_written_is_removed_by_the_next(tmp_path):
    from glowplug.timeline.write import _replace

    (tmp_path / "report.json.0123abcd.tmp").touch()
    (tmp_path / "report.json.others.tmp").touch()
    _replace(str(tmp_path / "report.json"), b"{}", mode=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.json.others.tmp"]


def test_a_staged_tree_that_a_killed_restore_left_is_removed_by_whoever_takes_the_folder_next(tmp_path):
    from glowplug.cache.live import claim

    with claim(tmp_path, "e" * 64) as live:
        (live.path / ".glowplug" / "staging-1" / "old" / "vllm").mkdir(parents=True)
        (live.path / ".glowplug" / "staging-1" / "old" / "vllm" / "graph").touch()
    with claim(tmp_path, "e" * 64) as live:
        assert not list((live.path / ".glowplug").glob("staging-*"))


def test_the_private_key_s_copy_of_a_first_publication_that_was_killed_is_removed_by_the_next(tmp_path):
    from glowplug.cache.keyring import user_signer

    assert user_signer(tmp_path).created
    [key] = (tmp_path / "keys").glob("*.key")
    copy = key.with_name(f".{key.name}.1234.0123abcd.tmp")
    os.link(key, copy)
    assert not user_signer(tmp_path).created
    assert not copy.exists()
    assert key.exists()
