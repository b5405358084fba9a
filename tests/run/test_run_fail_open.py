"""Whatever is wrong with store, network, disk or user: the engine starts, cold, and one line says why."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from glowplug.cache.keys import create_pair
from tests.run.program import eventually
from tests.store.stub import CREDENTIALS, Script, Stub, error


def started_cold(ended, says, outcome="off"):
    """It ran, it compiled, and one line, which the report repeats, says why it had to."""
    assert ended.code == 0
    assert b"compiled 4 loaded 0" in ended.out
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    [line] = ended.said("cold start:")
    assert says in line
    assert ended.report["outcome"] == outcome
    assert line == f"cold start: {ended.report['reason']}"


# --- the store


def test_a_store_that_does_not_listen(glowplug, compiler):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"}
    ended = glowplug.run(*compiler, options=["--store", "s3://bucket/x"], env=env)
    started_cold(ended, f"127.0.0.1:{port}")
    assert "Connection refused" in ended.report["reason"]
    assert ended.report["publish"]["state"] == "failed"


@pytest.mark.s3
def test_a_wrong_secret(glowplug, compiler, seaweedfs):
    env = seaweedfs.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}
    ended = glowplug.run(*compiler, options=["--store", f"s3://{seaweedfs.bucket}/run-secret"], env=env)
    started_cold(ended, "SignatureDoesNotMatch")
    assert ended.report["publish"]["state"] == "failed"


@pytest.mark.s3
def test_a_bucket_that_does_not_exist(glowplug, compiler, seaweedfs):
    ended = glowplug.run(*compiler, options=["--store", "s3://no-such-bucket/x"], env=seaweedfs.env_of("admin"))
    started_cold(ended, "no-such-bucket")


@pytest.mark.s3
def test_a_reader_restores_and_cannot_publish_which_it_says_in_one_line(glowplug, compiler, seaweedfs, tmp_path):
    options = ["--store", f"s3://{seaweedfs.bucket}/run-reader"]
    reading = seaweedfs.env_of("reader")
    ended = glowplug.run(*compiler, options=options, env=reading)
    assert (ended.code, ended.report["outcome"], ended.report["publish"]["state"]) == (0, "miss", "failed")
    [line] = ended.said("nothing was published")
    assert "AccessDenied" in line
    assert "s3:PutObject" in line

    create_pair(tmp_path / "fleet")
    glowplug.forget()
    writing = seaweedfs.env | {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "fleet.key")}
    assert glowplug.run(*compiler, options=options, env=writing).report["publish"]["state"] == "published"
    glowplug.forget()
    ended = glowplug.run(*compiler, options=options, env=reading | {"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "fleet.pub")})
    assert b"compiled 0 loaded 4" in ended.out
    assert ended.report["outcome"] == "hit"


def test_a_bucket_in_another_region(glowplug, compiler):
    with Stub(error(301, "PermanentRedirect", x_amz_bucket_region="ap-south-1")) as stub:
        ended = glowplug.run(*compiler, options=["--store", "s3://bucket/x"], env=stub.env)
    started_cold(ended, "ap-south-1")
    assert "AWS_REGION" in ended.report["reason"]


def test_a_store_that_is_slower_than_the_deadline(glowplug, compiler):
    with Stub(Script(then="stall")) as stub:
        options = ["--store", "s3://bucket/x", "--restore-deadline", "1s", "--quiet"]
        ended = glowplug.run(*compiler, options=options, env=stub.env, timeout=10)  # nothing is asked of such a store at the end
    slow = "restore took longer than 1 s (raise --restore-deadline, or look at the store)"
    started_cold(ended, f"{slow}; nothing will be published", "miss")
    [restore] = [phase for phase in ended.report["phases"] if phase["name"] == "restore"]
    assert 0.9 < restore["seconds"] < 2.5
    assert ended.report["publish"]["state"] == "skipped"


def test_a_server_whose_store_was_too_slow_publishes_once_it_serves_and_displaces_nothing(glowplug, vllm):
    for graphs, said in (("2", "published generation"), ("2", "another start published first")):
        with glowplug.begin(*vllm, options=["--restore-deadline", "0.001ms"], env={"GRAPHS": graphs}) as start:
            start.wait_for(said)
            start.signal(signal.SIGTERM)
            ended = start.end()
        assert "restore took longer than 1e-06 s" in ended.report["reason"]
        glowplug.forget()
    assert len(glowplug.published()) == 1


def test_a_store_that_may_not_be_read(glowplug, compiler, powerless):
    glowplug.store.mkdir(mode=0)
    ended = glowplug.run(*compiler, prefix=powerless)
    started_cold(ended, f"{glowplug.store}")
    assert ended.report["publish"]["state"] == "failed"
    glowplug.store.chmod(0o700)


def test_a_store_that_is_a_file(glowplug, compiler):
    glowplug.store.write_text("no folder")
    ended = glowplug.run(*compiler)
    started_cold(ended, f"{glowplug.store} is a file, and a store is a folder")


# --- the disk


def test_a_disk_that_is_full_while_restoring_leaves_nothing_half_restored(glowplug, compiler):
    glowplug.run(*compiler, env={"BYTES": "300000"})
    glowplug.forget()
    ended = glowplug.run(*compiler, prefix=["prlimit", "--fsize=200000"])
    started_cold(ended, f"cannot write the cache folder {glowplug.live}")
    assert "File too large" in ended.report["reason"]
    assert len(list(glowplug.live.glob("*/inductor/*/*"))) == 4  # the engine's own
    assert not glowplug.half_written()
    assert len(glowplug.published()) == 1


def test_a_disk_with_too_little_room_for_the_cache(glowplug, compiler):
    small = f'mount -t tmpfs -o size=18m tmpfs {glowplug.live} && exec "$@"'
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a tmpfs")
    glowplug.run(*compiler, env={"BYTES": "1000000"})
    glowplug.forget()
    glowplug.live.mkdir()
    ended = glowplug.run(*compiler, prefix=["unshare", "-m", "sh", "-c", small, "sh"])
    started_cold(ended, "the cache needs 3.8 MiB, and")
    assert "--cache-dir" in ended.report["reason"]


def test_a_disk_that_is_full_while_publishing_shows_nobody_a_part(glowplug, compiler):
    ended = glowplug.run(*compiler, env={"BYTES": "300000"}, prefix=["prlimit", "--fsize=400000"])
    assert (ended.code, ended.report["publish"]["state"]) == (0, "failed")
    [line] = ended.said("nothing was published")
    assert "cannot write the pack to" in line
    assert "File too large" in line
    assert not glowplug.published()
    assert not glowplug.half_written()
    assert glowplug.run(*compiler).report["publish"]["state"] == "published"


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_cache_folder_that_cannot_be_written(glowplug, compiler, powerless, mode):
    glowplug.live.mkdir()
    glowplug.live.chmod(mode)
    ended = glowplug.run(*compiler, prefix=powerless)
    glowplug.live.chmod(0o700)
    assert (ended.code, ended.report["outcome"]) == (0, "off")
    assert b"without a cache folder" in ended.out  # its own settings are left alone
    [line] = ended.ours
    assert line.startswith(f"cold start: cannot use the cache folder {glowplug.live}: ")
    assert "Permission denied" in line
    assert "--cache-dir" in line


def test_a_report_that_cannot_be_read_is_replaced(glowplug, compiler, powerless):
    glowplug.report.touch(mode=0o200)
    ended = glowplug("run", "--no-cache", "--report", str(glowplug.report), "--", *compiler, prefix=powerless)
    assert (ended.code, ended.report["outcome"]) == (0, "off")


def test_a_cache_folder_below_a_file(glowplug, compiler, tmp_path):
    (tmp_path / "file").touch()
    ended = glowplug.run(*compiler, options=["--cache-dir", str(tmp_path / "file" / "live")])
    assert (ended.code, ended.report["outcome"]) == (0, "off")
    assert b"without a cache folder" in ended.out
    [line] = ended.ours
    assert "Not a directory" in line


def test_a_live_folder_that_another_engine_holds_is_passed_over_and_the_cache_still_hits(glowplug, compiler):
    root = glowplug.run(*compiler).report["cache"]["root"]
    with open(f"{root}/.glowplug/lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = glowplug.run(*compiler)
    assert ended.report["cache"]["root"] == f"{root}-2"
    assert f"in {root}-2/inductor".encode() in ended.out
    assert (ended.code, ended.report["outcome"]) == (0, "hit")


def test_an_engine_that_outlives_its_killed_wrapper_keeps_its_live_folder(glowplug, compiler):
    with glowplug.begin(*compiler, env={"DOES": "wait"}) as start:
        start.wait_for("compiled 4", "out")
        start.signal(signal.SIGKILL)
        start.process.wait()
        beside = glowplug.run(*compiler, options=["--wait", "0"]).report["cache"]["root"]
        assert beside.endswith("-2")
        start.end()  # which lets the engine end
    eventually(lambda: f"{glowplug.run(*compiler, options=['--wait', '0']).report['cache']['root']}-2" == beside)


# --- the user


@pytest.fixture
def powerless():
    """A prefix under which the modes of files count, for root as well."""
    if os.geteuid():
        return []
    without = "-dac_override,-dac_read_search"
    prefix = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]
    if not shutil.which("setpriv") or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root can't be without its power over files here (setpriv)")
    return prefix


@pytest.fixture
def stranger():
    """A prefix that runs a command as a user who is in no list, with an empty /var/tmp."""
    # Reading anything is left to him, for Python may be installed in another user's home.
    as_user = "setpriv --reuid=12345 --regid=12345 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
    script = f'mount -t tmpfs tmpfs /var/tmp && chmod 1777 /var/tmp && {as_user} "$@" && exec {as_user} "$@"'
    prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
    if os.geteuid() or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can become another user (unshare, mount, setpriv)")
    return prefix


@pytest.mark.parametrize("home", ["/", None])
def test_a_random_user_without_a_home_starts_twice_and_the_second_start_is_warm(glowplug, compiler, stranger, tmp_path, home):
    reports = tmp_path / "reports"
    reports.mkdir()
    reports.chmod(0o777)
    env = {"HOME": home, "XDG_CACHE_HOME": None, "GLOWPLUG_REPORT": str(reports / "report.json")}
    ended = glowplug("run", "--", *compiler, env=env, prefix=stranger, cwd="/")
    assert ended.code == 0
    assert ended.out.count(b"in /var/tmp/glowplug-12345/") == 2
    assert b"compiled 4 loaded 0" in ended.out
    assert b"compiled 0 loaded 4" in ended.out
    assert "Traceback" not in ended.err
    assert all("no signing key" in line for line in ended.said("nothing was published"))
    assert ended.said("using your own, file:///var/tmp/glowplug-12345/store")


# --- the keys


@pytest.mark.parametrize("name", ["GLOWPLUG_TRUSTED_KEYS", "GLOWPLUG_SIGNING_KEY"])
def test_a_key_whose_secret_is_not_mounted(glowplug, compiler, name):
    ended = glowplug.run(*compiler, env={name: "/no/such.pem"})
    started_cold(ended, f"/no/such.pem: No such file or directory (named in {name})")
    assert ended.report["publish"]["state"] == "skipped"
    assert len(ended.ours) == 1
    assert not glowplug.store.exists()


def test_a_signing_key_that_is_none_makes_a_reader_that_hits_and_is_not_repeated(glowplug, compiler, tmp_path):
    create_pair(tmp_path / "fleet")
    trusted = {"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "fleet.pub")}
    glowplug.run(*compiler, env=trusted | {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "fleet.key")})
    glowplug.forget()
    secret = "hunter2-hunter2" * 3
    ended = glowplug.run(*compiler, env=trusted | {"GLOWPLUG_SIGNING_KEY": secret})
    assert (ended.code, ended.report["outcome"]) == (0, "hit")
    assert len(ended.said("this start publishes nothing: GLOWPLUG_SIGNING_KEY")) == 1
    assert secret not in ended.err + str(ended.report)


# --- the report


def test_a_report_that_cannot_be_written_is_said_once_and_the_start_goes_on(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--report", "/proc/no/report.json"])
    assert ended.code == 0
    assert b"compiled 4" in ended.out
    [line] = ended.said("/proc/no/report.json")
    assert line.startswith("report not written")
    assert len(glowplug.published()) == 1


def test_a_report_may_go_to_a_pipe_and_the_start_does_not_wait_for_its_reader(glowplug, compiler, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ended = glowplug.run(*compiler, options=["--report", str(tmp_path / "pipe")], timeout=20)
    assert ended.code == 0
    assert len(ended.said("nobody reads this pipe")) == 1


# --- secrets


def test_a_commands_cache_that_holds_a_secret_is_not_published_and_the_file_is_named(glowplug, compiler):
    ended = glowplug.run(*compiler, env={"DOES": "leak", "VLLM_API_KEY": "correct-horse-battery"})
    assert (ended.code, ended.report["publish"]["state"]) == (0, "failed")
    [line] = ended.said("nothing was published")
    assert "inductor/settings.json holds the value of VLLM_API_KEY" in line
    assert "correct-horse" not in ended.err + str(ended.report)
    assert not glowplug.published()
    assert not glowplug.half_written()


def test_a_server_whose_cache_holds_a_secret_serves_on(glowplug, vllm):
    env = {"DOES": "leak", "VLLM_API_KEY": "correct-horse-battery"}
    with glowplug.begin(*vllm, env=env) as start:
        start.wait_for("nothing was published")
        assert start.process.poll() is None
        start.signal(15)
        ended = start.end()
    assert (ended.code, ended.report["publish"]["state"]) == (0, "failed")
    assert "cache_key_factors.json" in ended.report["publish"]["reason"]
    assert "correct-horse" not in ended.err.replace("(EngineCore", "")
    assert not glowplug.published()


# --- the machine

NO_THREADS = """
import os, threading
real = threading.Thread.start
def start(thread):
    if thread.name.startswith(tuple(os.environ["NO_THREADS"].split())):
        raise RuntimeError("can't start new thread")
    real(thread)
threading.Thread.start = start
"""


@pytest.mark.parametrize("names", ["glowplug-pump", "glowplug-restore", "glowplug-"])
def test_a_machine_that_gives_no_threads(glowplug, compiler, tmp_path, names):
    (tmp_path / "sitecustomize.py").write_text(NO_THREADS)
    ended = glowplug.run(*compiler, env={"PYTHONPATH": str(tmp_path), "NO_THREADS": names})
    assert ended.code == 0
    assert b"compiled 4 loaded 0" in ended.out
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    assert ended.said("no thread can be started")


def test_a_machine_that_gives_no_thread_for_the_weights_or_for_readiness(glowplug, vllm, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_THREADS)
    env = {"PYTHONPATH": str(tmp_path), "NO_THREADS": "glowplug-weights glowplug-watch glowplug-warm"}
    with glowplug.begin(*vllm, env=env) as running:
        running.wait_for("when the engine is ready is not watched")
        running.signal(15)
        ended = running.end()
    assert "Traceback" not in ended.err


def test_an_engine_whose_python_does_not_answer_gets_no_cache_that_might_not_fit(glowplug, compiler, tmp_path):
    glowplug.run(*compiler)
    silent = tmp_path / "python3"
    silent.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit\nexec {sys.executable} "$@"\n')
    silent.chmod(0o755)
    ended = glowplug.run(str(silent), *compiler[1:])
    assert b"without a cache folder" in ended.out
    [line] = ended.said("cold start:")
    assert f"{silent} did not say within 10 s which packages it has" in line
    assert (ended.code, ended.report["outcome"], len(glowplug.published())) == (0, "off", 1)
    assert glowplug("cache", "key", "--", str(silent), *compiler[1:]).code == 1


def test_an_argument_that_is_no_text_is_a_part_of_the_key_like_any_other(glowplug, compiler):
    first = glowplug.run(*compiler, b"\xff")
    assert (first.code, first.report["outcome"], first.report["publish"]["state"]) == (0, "miss", "published")
    assert glowplug.run(*compiler, b"\xff").report["outcome"] == "hit"
    assert glowplug.run(*compiler, b"\xfe").report["outcome"] == "miss"
