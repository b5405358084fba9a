"""``glowplug weights pull`` as a user types it: targets that are none, hints that hold, and names that no encoding has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from weights_samples import write_checkpoint

from glowplug.errors import UsageError
from glowplug.units import MIB
from glowplug.weights.fetch.ferry import RING_BYTES
from glowplug.weights.transfer.pull_target import target_folder
from glowplug.weights.transfer.ring import ring_bytes


@pytest.fixture
def pull(tmp_path):
    def run(*words, **env):
        command = [sys.executable, "-m", "glowplug", "weights", "pull", *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | env
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False, timeout=60)

    return run


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
    assert b"push" in ended.stderr
    assert not (tmp_path / "s3:").exists()


def test_after_a_typo_nothing_is_said_to_go_on(pull):
    ended = pull("nowhere", "pulled")
    assert ended.returncode == 1
    assert b"goes on" not in ended.stderr


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C.UTF-8"}])
@pytest.mark.parametrize("name", [b"m\xff", "modèle".encode()])
def test_a_path_that_no_encoding_has_is_pulled_from_and_to(pull, tmp_path, name, env):
    write_checkpoint(tmp_path / "model")
    (tmp_path / "model").rename(os.fsdecode(os.fsencode(tmp_path / "x")[:-1] + name))
    for words in ((), ("--json",)):
        ended = pull(name, b"to-" + name, *words, **env)
        assert ended.returncode == 0, ended.stderr
        assert b"Traceback" not in ended.stderr


def test_the_ring_is_a_quarter_of_what_is_free_where_that_is_little(tmp_path):
    assert ring_bytes(tmp_path) == RING_BYTES  # nothing can be read
    (tmp_path / "proc").mkdir()
    for free, expected in ((64 << 30, RING_BYTES), (400 * MIB, 100 * MIB), (8 * MIB, 16 * MIB)):
        (tmp_path / "proc" / "meminfo").write_text(f"MemAvailable: {free // 1024} kB\n")
        assert ring_bytes(tmp_path) == expected
