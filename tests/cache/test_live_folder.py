"""A live folder is private to one engine for as long as that runs."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from glowplug.cache.live import claim, default_base
from glowplug.errors import LocalError

NAME = "0123456789abcdef"
ENVELOPE_DIGEST = NAME + "0" * 48
NOBODY = 65534

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")


def test_two_claims_at_once_get_two_folders(tmp_path):
    with claim(tmp_path, ENVELOPE_DIGEST) as first, claim(tmp_path, ENVELOPE_DIGEST) as second:
        assert (first.path.name, second.path.name) == (NAME, f"{NAME}-2")
        assert first.path.stat().st_mode & 0o777 == 0o700
    with claim(tmp_path, ENVELOPE_DIGEST) as again:
        assert again.path == first.path


def test_sixteen_threads_get_sixteen_folders_and_the_next_an_error_that_says_why(tmp_path):
    claims, barrier = [], threading.Barrier(16)

    def work():
        barrier.wait(10)
        claims.append(claim(tmp_path, ENVELOPE_DIGEST))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({live.path for live in claims}) == 16
    with pytest.raises(LocalError, match=r"none of its 16 folders .* in use by another engine") as caught:
        claim(tmp_path, ENVELOPE_DIGEST)
    assert caught.value.object == str(tmp_path)
    assert "--cache-dir" in caught.value.hint
    for live in claims:
        live.close()
    claim(tmp_path, ENVELOPE_DIGEST).close()


def test_the_lock_of_a_killed_holder_is_free(tmp_path):
    code = """
import sys, time, pathlib
from glowplug.cache.live import claim
live = claim(pathlib.Path(sys.argv[1]), sys.argv[2])
print(live.path, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code, tmp_path, ENVELOPE_DIGEST], stdout=subprocess.PIPE, text=True) as holder:
        held = holder.stdout.readline().strip()
        with claim(tmp_path, ENVELOPE_DIGEST) as second:
            assert str(second.path) == held + "-2"
        holder.kill()
        holder.wait()
        with claim(tmp_path, ENVELOPE_DIGEST) as live:
            assert str(live.path) == held


def test_what_an_engine_leaves_running_keeps_no_folder(tmp_path):
    with claim(tmp_path, ENVELOPE_DIGEST):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with claim(tmp_path, ENVELOPE_DIGEST) as live:
            assert live.path.name == NAME
    finally:
        child.kill()
        child.wait()


def test_what_is_spawned_by_the_way_does_not_keep_the_folder_of_a_holder_that_was_killed(tmp_path):
    code = """
import os, pathlib, subprocess, sys
from glowplug.cache.live import claim
live = claim(pathlib.Path(sys.argv[1]), sys.argv[2])
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", code, tmp_path, ENVELOPE_DIGEST], stdout=subprocess.PIPE, text=True) as holder:
        sleeper = int(holder.stdout.readline())
        holder.wait()
        try:
            with claim(tmp_path, ENVELOPE_DIGEST) as live:
                assert live.path.name == NAME
        finally:
            os.kill(sleeper, signal.SIGKILL)


def test_closing_twice_closes_nobody_elses_file(tmp_path):
    live = claim(tmp_path, ENVELOPE_DIGEST)
    live.close()
    with open(tmp_path / "other", "wb") as other:
        live.close()
        other.write(b"still open")


def test_the_content_stays_for_the_next_start(tmp_path):
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        (live.path / "vllm").mkdir()
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert (live.path / "vllm").is_dir()


def test_a_missing_base_is_made_private(tmp_path):
    with claim(tmp_path / "a" / "b", ENVELOPE_DIGEST):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("base", ["file", "file/below"])
def test_a_base_that_cannot_be_a_folder_is_an_error_that_names_it(tmp_path, base):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LocalError) as caught:
        claim(tmp_path / base, ENVELOPE_DIGEST)
    assert caught.value.object == str(tmp_path / base)
    assert "--cache-dir" in caught.value.hint


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / NAME).write_bytes(b"")
    with pytest.raises(LocalError, match=f"File exists: {tmp_path / NAME}"):
        claim(tmp_path, ENVELOPE_DIGEST)


def test_a_folder_that_others_can_write_is_passed_over(tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME).chmod(0o770)
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert live.path.name == f"{NAME}-2"
    assert os.listdir(tmp_path / NAME) == []


def test_a_link_in_the_place_of_the_folder_is_passed_over(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert live.path.name == f"{NAME}-2"
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / NAME / ".glowplug").mkdir(parents=True, mode=0o700)
    (tmp_path / NAME).chmod(0o700)
    (tmp_path / NAME / ".glowplug/lock").symlink_to(tmp_path / "made")
    with pytest.raises(LocalError):
        claim(tmp_path, ENVELOPE_DIGEST)
    assert not (tmp_path / "made").exists()


@root_only
def test_a_folder_of_another_user_is_passed_over(tmp_path):
    (tmp_path / NAME).mkdir(mode=0o700)
    os.chown(tmp_path / NAME, NOBODY, NOBODY)
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert live.path.name == f"{NAME}-2"


@root_only
def test_a_base_that_somebody_else_put_into_a_shared_folder_is_refused(tmp_path):
    """Its owner could swap the folders in it after they have been checked."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "glowplug-0").mkdir()
    os.chown(shared / "glowplug-0", NOBODY, NOBODY)
    with pytest.raises(LocalError, match=f"belongs to uid {NOBODY}"):
        claim(shared / "glowplug-0", ENVELOPE_DIGEST)


@root_only
def test_a_volume_of_another_user_that_the_user_named_is_used(tmp_path):
    """A folder of the host's user, mounted into a container that runs as root."""
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", NOBODY, NOBODY)
    with claim(tmp_path / "cache", ENVELOPE_DIGEST) as live:
        assert live.path.stat().st_uid == 0


@pytest.fixture
def somebody():
    """Without root's rights, and a folder that everybody can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        try:
            yield pathlib.Path(folder)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)


def test_a_base_that_cannot_be_written_is_an_error_that_says_so(somebody):
    base = somebody / "cache"
    if os.getuid() != 0:
        os.chmod(somebody, 0o555)
    with pytest.raises(LocalError, match="Permission denied") as caught:
        claim(base, ENVELOPE_DIGEST)
    assert caught.value.object == str(base)
    assert "--cache-dir" in caught.value.hint


def test_an_existing_base_without_write_permission_is_an_error_that_says_so(somebody):
    if os.getuid() != 0:
        os.chmod(somebody, 0o555)
    with pytest.raises(LocalError, match="Permission denied"):
        claim(somebody, ENVELOPE_DIGEST)


def test_the_default_is_where_the_user_said_caches_belong():
    assert default_base({"XDG_CACHE_HOME": "/fast"}) == pathlib.Path("/fast/glowplug/live")


@pytest.mark.parametrize("env", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}, {"HOME": "/home/somebody"}])
def test_the_default_is_on_the_nodes_own_disk_and_never_in_the_home_folder(env):
    base = default_base(env)
    assert base.is_absolute()
    assert base.name == f"glowplug-{os.getuid()}"
    assert "home" not in base.parts


def test_where_nothing_can_be_written_at_all_the_default_is_an_ordinary_folder_whose_use_fails(monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert default_base({}) == pathlib.Path(f"/var/tmp/glowplug-{os.getuid()}")


def test_a_note_reaches_whoever_has_the_folder_next_and_is_bounded(tmp_path):
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert live.note == ""
        live.leave_note("first, and longer")
        live.leave_note("last")
    live.leave_note("too late")  # the folder was given back
    with claim(tmp_path, ENVELOPE_DIGEST) as live:
        assert live.note == "last"
        live.leave_note("x" * 1000)
        assert live.note == "x" * 64
    assert live.note == ""
