"""``glowplug weights push`` to a real S3 server: killed or interrupted and started again, it sends what is missing, no more."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.store import open_store, s3_multipart
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.open import open_source
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, SEAL_NAME, parse_marker
from testbed.range_faults import Fault
from testbed.store_proxy import StoreProxy, on

pytestmark = pytest.mark.s3
PART = 5 * 1024 * 1024  # S3 takes none that is smaller
# The command line with small parts; it does to itself what the environment asks for once so many parts were sent.
RUN = f"""
import os, sys, threading
from glowplug.store import s3_multipart
s3_multipart.PART_BYTES = s3_multipart.SINGLE_LIMIT_BYTES = {PART}
send, sent, lock = s3_multipart._send_part, [], threading.Lock()
def counted(*args):
    etag = send(*args)
    with lock:
        sent.append(etag)
        if len(sent) == int(os.environ.get("AFTER", "0")):
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
            threading.Event().wait(1)
    return etag
s3_multipart._send_part = counted
from glowplug.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("push") / "model"
    write_checkpoint(folder, files=2, tensors=2, elements=(2_000_000, 2_100_000))  # 4 parts a file, three of them whole
    return folder


@pytest.fixture
def place(seaweedfs, request):
    return f"s3://{seaweedfs.bucket}/push/{request.node.name}"


@pytest.fixture
def push(seaweedfs, model, place, tmp_path, monkeypatch):
    monkeypatch.setattr(s3_multipart, "PART_BYTES", PART)
    monkeypatch.setattr(s3_multipart, "SINGLE_LIMIT_BYTES", PART)

    def run(*words, **env):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | seaweedfs.env | env
        if not env:  # nothing is to happen to it
            return weights("push", model, place, *words, env=environment)
        command = [sys.executable, "-c", RUN, "weights", "push", str(model), place, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


def same(seaweedfs, place, model):
    store = open_store(place, env=seaweedfs.env)
    names = {info.key: info.size_bytes for info in store.list("")}
    marker = parse_marker(store.get(COMPLETE_NAME).data, name="m")
    assert {name: size for name, size in names.items() if not name.startswith("glowplug.")} == {
        path.name: path.stat().st_size for path in model.iterdir()
    }
    for file in marker.files:
        data = bytearray(file.size_bytes)
        store.read_into(file.name, 0, memoryview(data))
        assert bytes(data) == (model / file.name).read_bytes()
    return names


def test_a_push_ends_with_a_checkpoint_that_can_be_opened_and_the_second_sends_nothing(push, seaweedfs, place, model):
    first = push("--json", "--seal")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert document["sent_bytes"] == document["bytes"] == sum(path.stat().st_size for path in model.iterdir())
    assert SEAL_NAME in same(seaweedfs, place, model)
    source = open_source(place, env=seaweedfs.env)
    assert len(open_checkpoint(source).files) == 2
    again = push()
    assert again.returncode == 0
    assert "complete already" in again.stdout


def test_after_a_kill_only_the_missing_parts_are_sent(push, seaweedfs, place, model):
    killed = push("--connections", "2", AFTER="3", SIGNAL=str(int(signal.SIGKILL)))
    assert killed.returncode == -signal.SIGKILL
    store = open_store(place, env=seaweedfs.env)
    assert COMPLETE_NAME not in {info.key for info in store.list("")}
    again = push("--json")
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    assert document["bytes"] - document["sent_bytes"] >= 3 * PART
    assert sum(file["kept_bytes"] for file in document["files"]) >= 3 * PART
    same(seaweedfs, place, model)


def test_ctrl_c_says_how_to_go_on_and_what_was_sent_is_kept(push, seaweedfs, place, model):
    stopped = push("--connections", "1", AFTER="2", SIGNAL=str(int(signal.SIGINT)))
    assert stopped.returncode == 130
    assert stopped.stderr == "glowplug: interrupted; the same command goes on from here\n"
    document = json.loads(push("--json").stdout)
    assert sum(file["kept_bytes"] for file in document["files"]) >= 2 * PART
    same(seaweedfs, place, model)


def test_of_two_checkpoints_pushed_to_a_bucket_at_once_one_is_whole_and_the_other_refused(seaweedfs, model, place, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    for shard in other.glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | seaweedfs.env
    command = [sys.executable, "-m", "glowplug", "weights", "push"]
    running = {
        folder: subprocess.Popen([*command, str(folder), place], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for folder in (model, other)
    }
    errors = {folder: process.communicate(timeout=120)[1] for folder, process in running.items()}
    won = [folder for folder, process in running.items() if process.returncode == 0]
    assert len(won) == 1, errors
    assert PUSHING_NAME not in same(seaweedfs, place, won[0])


@pytest.mark.parametrize("until", ["config.json", COMPLETE_NAME])
def test_a_push_that_is_taken_over_by_force_ends_and_no_marker_stays_over_a_mixture(seaweedfs, tmp_path, until):
    """A shard of the first push lands only when the second, by force, has written one of its last files."""
    place = f"s3://{seaweedfs.bucket}/push/taken-over-{until}"
    write_checkpoint(tmp_path / "one", files=2)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for shard in (tmp_path / "two").glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    hold = on(Fault("hold", seconds=8, after=("PUT", f"/{until}")), "PUT", "model-00001-of-00002.safetensors")
    command = [sys.executable, "-m", "glowplug", "weights", "push", str(tmp_path / "one"), place]
    with StoreProxy(seaweedfs.port, rule=hold) as proxy:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | seaweedfs.env | proxy.env
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as first:
            while not any(seen.fault for seen in proxy.seen):
                assert first.poll() is None, first.communicate()
                time.sleep(0.01)
            second = weights("push", tmp_path / "two", place, "--force", env=environment)
            _, said = first.communicate(timeout=60)
        assert second.returncode == 0, second.stderr
        assert first.returncode == 1
        assert said.startswith("glowplug: ")
        assert "Traceback" not in said
        if COMPLETE_NAME not in {info.key for info in open_store(place, env=seaweedfs.env).list("")}:
            assert "push the one that is to stay again, with --force" in said
            assert weights("push", tmp_path / "two", place, "--force", env=environment).returncode == 0
        else:
            assert until != COMPLETE_NAME, "it can't have been before the marker"
    assert PUSHING_NAME not in same(seaweedfs, place, tmp_path / "two")


def test_a_bucket_that_is_not_there_is_one_line(seaweedfs, model, tmp_path):
    ended = weights("push", model, "s3://no-such-bucket/m", env={"HOME": str(tmp_path)} | seaweedfs.env)
    assert ended.returncode == 1
    assert "no-such-bucket" in ended.stderr
    assert "Traceback" not in ended.stderr
