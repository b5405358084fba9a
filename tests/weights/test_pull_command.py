"""``glowplug weights pull`` as a user types it: targets that are none, hints that hold, and names that no encoding has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.errors import UsageError
from glowplug.store import open_store
from glowplug.units import MIB
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.ferry import RING_BYTES
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.pull_target import target_folder
from glowplug.weights.transfer.push import push
from glowplug.weights.transfer.ring import ring_bytes


@pytest.fixture
def pull(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: weights("pull", *words, env={"HOME": str(tmp_path)})


@pytest.mark.parametrize("target", ["s3://bucket/m", "S3:/bucket/m", "https://key:secret@host/m", "file://m", "~/m", "~me/m", ""])
def test_a_target_that_is_no_folder_is_refused(target):
    with pytest.raises(UsageError) as caught:
        target_folder(target)
    assert caught.value.hint
    assert "secret" not in caught.value.line()


def test_a_file_url_means_its_path():
    assert target_folder("file:///models/a%20b") == Path("/models/a b")
    assert target_folder("models/a:b") == Path("models/a:b")


def test_a_store_as_target_is_a_wrong_command_line_and_makes_no_folder(pull, tmp_path):
    write_checkpoint(tmp_path / "model")
    ended = pull("model", "s3://bucket/m")
    assert ended.returncode == 2
    assert "push" in ended.stderr
    assert not (tmp_path / "s3:").exists()


def test_after_a_typo_nothing_is_said_to_go_on(pull):
    ended = pull("nowhere", "pulled")
    assert ended.returncode == 1
    assert "goes on" not in ended.stderr


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C.UTF-8"}])
@pytest.mark.parametrize("name", [b"m\xff", "modèle".encode()])
def test_a_path_that_no_encoding_has_is_pulled_from_and_to(tmp_path, name, env):
    write_checkpoint(tmp_path / "model")
    (tmp_path / "model").rename(os.fsdecode(os.fsencode(tmp_path / "x")[:-1] + name))
    for words in ((), ("--json",)):
        command = [sys.executable, "-m", "glowplug", "weights", "pull", name, b"to-" + name, *words]
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | env
        ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stderr
        assert b"Traceback" not in ended.stderr


def test_the_ring_is_a_quarter_of_what_is_free_where_that_is_little(tmp_path):
    assert ring_bytes(tmp_path) == RING_BYTES  # nothing can be read
    (tmp_path / "proc").mkdir()
    for free, expected in ((64 << 30, RING_BYTES), (400 * MIB, 100 * MIB), (8 * MIB, 16 * MIB)):
        (tmp_path / "proc" / "meminfo").write_text(f"MemAvailable: {free // 1024} kB\n")
        assert ring_bytes(tmp_path) == expected


def test_over_http_too_a_file_is_held_to_the_digest_that_its_push_has_left(pull, range_server, tmp_path):
    write_checkpoint(tmp_path / "model", files=1)
    served = tmp_path / "served" / "bucket" / "pushed"
    push(open_checkpoint(LocalSource(tmp_path / "model")), tmp_path / "model", open_store(f"file://{served}", env={}))
    url = range_server(tmp_path / "served").url("bucket/pushed")
    pulled = pull(url, "first", "--json")
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["verified"] == "its push's digests"
    (path,) = served.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused = pull(url, "second")
    assert refused.returncode == 1
    assert f"{url}/{path.name}: is not as it was pushed" in refused.stderr
