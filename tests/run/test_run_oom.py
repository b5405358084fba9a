"""The kernel's count of processes that it killed for want of memory, read from laid-out control groups of both versions."""

from __future__ import annotations

import pytest

from glowplug.run.oom import oom_kills


def laid_out(tmp_path, membership, files):
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return oom_kills(root=str(tmp_path / "fs"), proc=str(tmp_path / "cgroup"))


EVENTS = "low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        ("0::/pod/engine\n", {"pod/engine/memory.events": EVENTS}, 3),
        ("0::/\n", {"memory.events": EVENTS}, 3),
        ("0::/../other\n", {"memory.events": EVENTS}, 3),  # a container that sees its own group as the root
        ("2:cpu:/x\n4:memory:/pod\n0::/\n", {"memory/pod/memory.oom_control": CONTROL}, 5),
        ("4:memory:/pod\n", {"memory/memory.oom_control": CONTROL}, 5),
        ("0::/\n", {}, None),
        ("0::/\n", {"memory.events": "oom_kill many\n"}, None),
        ("rubbish\n", {}, None),
        ("", {}, None),
    ],
    ids=range(9),
)
def test_the_counter_of_this_group_is_found_or_not_known(tmp_path, membership, files, count):
    assert laid_out(tmp_path, membership, files) == count


def test_no_proc_is_not_known(tmp_path):
    assert oom_kills(root=str(tmp_path), proc=str(tmp_path / "none")) is None
