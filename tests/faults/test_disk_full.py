"""A disk that fills up at any moment: the engine starts, one line says what is full, and nothing half-written is believed.

The disks are tmpfs with so few inodes that making the n-th file or folder fails, for several n, and then with room again. Where
nothing can be mounted these tests are skipped; the tests of the parts limit the size of a file instead.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.faults.trials import TRIALS, Range

_BY_NAME = {trial.name: trial for trial in TRIALS}
_ROOM = "size=64m,nr_inodes=100000"


@pytest.fixture
def disk():
    """Makes a folder a disk of its own with so many inodes; called again, it gives it as many as one can want."""
    mounted = []

    def mount(folder, options=_ROOM):
        folder.mkdir(parents=True, exist_ok=True)
        again = ["-o", f"remount,{options}"] if folder in mounted else ["-t", "tmpfs", "-o", options]
        done = subprocess.run(["mount", *again, "none", folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
        if folder not in mounted:
            mounted.append(folder)

    if not shutil.which("mount"):
        pytest.skip("needs mount")
    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def field(tmp_path, launcher, folders):
    return Range(tmp_path, launcher, folders)


def started(ended, node):
    assert ended.code == 0, ended.said
    assert "Traceback" not in ended.said
    assert "internal error" not in ended.said
    assert len(node.engines()[1]) == node.engines()[0] > 0


@pytest.mark.parametrize("inodes", [2, 4, 6, 8, 10, 12])
def test_a_disk_of_the_store_that_is_full_while_publishing(field, disk, inodes):
    trial = _BY_NAME["publish"]
    place = field.begin(trial)
    disk(place.folder, f"size=64m,nr_inodes={inodes}")
    ended = field.node.start(place, "run")
    started(ended, field.node)
    assert "nothing was published" in ended.said
    assert "No space left on device" in ended.said
    assert field.node.seen_by_a_reader(place, field.envelope) == 0
    assert not field.node.temporary(place)
    disk(place.folder)
    started(field.node.start(place, "run"), field.node)
    assert field.node.seen_by_a_reader(place, field.envelope) == 4
    assert not field.node.bad_generations(place)


def test_a_disk_of_the_store_without_room_for_the_pack(field, disk):
    place = field.begin(_BY_NAME["publish"])
    disk(place.folder, "size=100k")
    ended = field.node.start(place, "run")
    started(ended, field.node)
    [line] = [line for line in ended.said.splitlines() if "nothing was published" in line]
    assert "cannot write the pack to" in line
    assert "free space on its disk" in line
    assert field.node.seen_by_a_reader(place, field.envelope) == 0
    assert not field.node.temporary(place)


@pytest.mark.parametrize("inodes", [8, 16, 24])
def test_a_disk_of_the_live_folder_that_is_full_while_restoring(field, disk, inodes):
    trial = _BY_NAME["restore"]
    place = field.begin(trial)
    field.node.live.mkdir()
    disk(field.node.live, f"size=64m,nr_inodes={inodes}")
    ended = field.node.start(place, "run")
    assert ended.code in {0, 1}  # the engine's own: it can't write either
    assert "Traceback" not in ended.said
    assert "internal error" not in ended.said
    assert field.node.engines()[0] == 1
    [line] = [line for line in ended.said.splitlines() if line.startswith("glowplug: cold start")]
    assert "No space left on device" in line
    for tree in field.node.live.glob("*"):
        assert not field.node.torn(tree)
    assert not field.node.temporary(place)
    disk(field.node.live)
    started(field.node.start(place, "run"), field.node)
    assert field.node.engines()[1][-1] == "ended loaded=8 compiled=0 torn=0"
    assert field.node.seen_by_a_reader(place, field.envelope) == 4


def test_a_disk_of_the_report_that_is_full(field, disk):
    place = field.begin(_BY_NAME["publish"])
    disk(field.node.report.parent, "size=4k,nr_inodes=2")
    (field.node.report.parent / "others").write_bytes(b"x")
    ended = field.node.start(place, "run")
    started(ended, field.node)
    assert ended.said.count("report not written to") == 1
    assert "No space left on device" in ended.said
    assert field.node.seen_by_a_reader(place, field.envelope) == 4


@pytest.mark.s3
@pytest.mark.parametrize("options", ["size=64m,nr_inodes=2", "size=64m,nr_inodes=5", "size=100k"])
def test_a_disk_of_the_node_s_copies_that_is_full(tmp_path, launcher, buckets, disk, options):
    field = Range(tmp_path, launcher, buckets)
    place = field.begin(_BY_NAME["restore"])
    copies = tmp_path / "copies"
    field.node.extra["GLOWPLUG_NODE_STORE"] = str(copies)
    disk(copies, options)
    ended = field.node.start(place, "run")
    started(ended, field.node)
    assert json.loads(field.node.report.read_text())["outcome"] in {"hit", "unused"}
    assert field.node.engines()[1] == ["ended loaded=8 compiled=0 torn=0"]
    field.node.reset()
    disk(copies)
    started(field.node.start(place, "run"), field.node)
    assert field.node.engines()[1] == ["ended loaded=8 compiled=0 torn=0"]
