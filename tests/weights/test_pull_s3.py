"""``glowplug weights pull`` from a real S3 server: killed or interrupted and started again, it fetches what is missing, no more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.store import open_store
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.marker import COMPLETE_NAME
from glowplug.weights.transfer.push import push

pytestmark = pytest.mark.s3
# The command line, which does to itself what the environment asks for once the journal has noted so many bytes.
RUN = """
import os, threading
from glowplug.weights.transfer import pull_disk
from glowplug.weights.transfer import pull_journal
pull_disk._SYNC_INTERVAL_S = 0.02
note, noted = pull_journal.Journal.note_done, [0]
def counted(self, stretches):
    found = list(stretches)
    note(self, found)
    before = noted[0]
    noted[0] += sum(end - start for _, start, end in found)
    after = int(os.environ.get("AFTER", "0"))
    if before < after <= noted[0]:
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
pull_journal.Journal.note_done = counted
from glowplug.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pull") / "model"
    write_checkpoint(folder, files=2, tensors=8, elements=(250_000, 300_000))  # about 9 MB a file
    return folder


@pytest.fixture(scope="module")
def place(seaweedfs, model):
    url = f"s3://{seaweedfs.bucket}/pull/model"
    push(open_checkpoint(LocalSource(model)), model, open_store(url, env=seaweedfs.env))
    return url


@pytest.fixture
def pull(seaweedfs, place, tmp_path):
    def run(*words, **env):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | seaweedfs.env | env
        if not env:  # nothing is to happen to it
            return weights("pull", place, tmp_path / "pulled", *words, env=environment)
        command = [sys.executable, "-c", RUN, "weights", "pull", place, str(tmp_path / "pulled"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "glowplug.complete.json"}


SLOW = ("--max-bandwidth", "15MB/s", "--chunk", "256KiB", "--concurrency", "2")
KEPT = 5_000_000


def test_a_checkpoint_comes_whole_and_the_second_pull_says_so(pull, model, tmp_path):
    first = pull()
    assert first.returncode == 0, first.stderr
    assert "verified by its push's digests" in first.stdout
    assert files(tmp_path / "pulled") == files(model)
    assert not [path for path in (tmp_path / "pulled").iterdir() if path.name.startswith(".")]
    again = pull()
    assert again.returncode == 0
    assert "complete already" in again.stdout


def test_after_a_kill_only_the_rest_is_fetched(pull, model, tmp_path):
    killed = pull(*SLOW, AFTER=str(KEPT), SIGNAL=str(int(signal.SIGKILL)))
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "pulled" / "glowplug.complete.json").exists()
    again = pull("--json")
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    assert document["fetched_bytes"] <= document["bytes"] - KEPT
    assert files(tmp_path / "pulled") == files(model)


def test_ctrl_c_says_how_to_go_on_and_keeps_what_came(pull, model, tmp_path):
    stopped = pull(*SLOW, AFTER=str(KEPT), SIGNAL=str(int(signal.SIGINT)))
    assert stopped.returncode == 130
    assert stopped.stderr == "glowplug: interrupted; the same command goes on from here\n"
    document = json.loads(pull("--json").stdout)
    assert document["fetched_bytes"] <= document["bytes"] - KEPT
    assert files(tmp_path / "pulled") == files(model)


def test_an_object_that_was_replaced_is_pulled_anew_and_the_others_are_kept(pull, seaweedfs, place, model, tmp_path):
    assert pull().returncode == 0
    store = open_store(place, env=seaweedfs.env)
    before = store.get("config.json").data
    marker = store.get(COMPLETE_NAME).data
    store.put("config.json", before + b" ")
    try:
        refused = pull()
        store.delete(COMPLETE_NAME)  # as the hint says: it was on purpose
        document = json.loads(pull("--json").stdout)
    finally:
        store.put("config.json", before)
        store.put(COMPLETE_NAME, marker)
    assert refused.returncode == 1
    assert "config.json: has" in refused.stderr
    assert document["fetched_bytes"] == len(before) + 1
    assert files(tmp_path / "pulled")["config.json"] == before + b" "
    assert model.exists()


def test_a_place_where_nothing_is_ends_in_one_line(seaweedfs, tmp_path):
    ended = weights("pull", f"s3://{seaweedfs.bucket}/nothing", tmp_path / "p", env={"HOME": str(tmp_path)} | seaweedfs.env)
    assert ended.returncode == 1
    assert "nothing" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "p").exists()
