"""Full or windowed, on made trees of /proc and /sys: the pod is never killed for its buffer, and the user is told why."""

from __future__ import annotations

import pytest

from glowplug.units import GIB, MIB
from glowplug.weights.buffer.memory import MARGIN_BYTES, choose_memory, find_room

POD = "kubepods.slice/pod1/container1"


@pytest.fixture
def machine(tmp_path):
    """Writes a tree; the node has 256 GiB available unless it is told otherwise."""

    def write(files=(), *, available=256 * GIB, group=f"0::/{POD}"):
        everything = {
            "proc/meminfo": f"MemTotal:  999 kB\nMemAvailable:   {available // 1024} kB\n",
            "proc/self/cgroup": group + "\n",
        }
        for name, content in {**everything, **dict(files)}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(content))
        return tmp_path

    return write


def group_v2(path, *, limit="max", current=0, stat="", high="max"):
    folder = f"sys/fs/cgroup/{path}".rstrip("/")
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.high": f"{high}\n",
        f"{folder}/memory.current": f"{current}\n",
        f"{folder}/memory.stat": stat,
    }


def group_v1(path, *, limit, usage=0, stat=""):
    folder = f"sys/fs/cgroup/memory/{path}".rstrip("/")
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": usage,
        f"{folder}/memory.stat": stat,
    }


def choose(root, size=16 * GIB, *, requested="auto", engine=2 * GIB, largest=GIB):
    return choose_memory(size, requested=requested, engine_bytes=engine, largest_tensor_bytes=largest, root=root)


def test_what_fits_beside_the_engine_is_buffered_in_full(machine):
    choice = choose(machine(group_v2(POD, limit=64 * GIB, current=6 * GIB)))
    assert (choice.mode, choice.ring_bytes, choice.plan_bytes) == ("full", 16 * GIB, None)
    assert choice.reason == "weights: 16.0 GiB buffered in full (memory limit 64.0 GiB, 58.0 GiB free)"


def test_what_does_not_fit_gets_a_window_of_what_is_left(machine):
    choice = choose(machine(group_v2(POD, limit=8 * GIB, current=GIB)), engine=4 * GIB)
    assert choice.mode == "windowed"
    assert choice.ring_bytes == choice.plan_bytes == 3 * GIB - MARGIN_BYTES
    assert choice.reason == (
        "weights: windowed, 2.5 GiB of 16.0 GiB at a time, because all of it beside the engine (4.0 GiB) would not fit"
        " (memory limit 8.0 GiB, 7.0 GiB free)"
    )


def test_the_last_byte_decides(machine):
    free = 16 * GIB + 2 * GIB + MARGIN_BYTES
    assert choose(machine(group_v2(POD, limit=free))).mode == "full"
    assert choose(machine(group_v2(POD, limit=free - 1))).mode == "windowed"


def test_a_window_is_never_larger_than_makes_sense_and_never_smaller_than_works(machine):
    assert choose(machine(group_v2(POD, limit=64 * GIB)), size=100 * GIB).ring_bytes == 4 * GIB
    assert choose(machine(group_v2(POD, limit=GIB)), largest=100).ring_bytes == 64 * MIB
    assert choose(machine(group_v2(POD, limit=GIB)), largest=3 * GIB + 5).ring_bytes == 3 * GIB + 4096


def test_the_tightest_limit_above_the_container_counts(machine):
    root = machine(
        group_v2(POD, limit=64 * GIB)
        | group_v2("kubepods.slice/pod1", limit=20 * GIB, current=5 * GIB)
        | group_v2("kubepods.slice")
    )
    assert find_room(root) == (find_room(root).__class__)(20 * GIB, 15 * GIB)


def test_a_container_that_sees_its_own_group_as_the_root_finds_its_limit(machine):
    assert find_room(machine(group_v2("", limit=10 * GIB, current=GIB), group="0::/")).free_bytes == 9 * GIB
    assert find_room(machine(group_v2("", limit=10 * GIB, current=GIB), group="0::/../../other")).free_bytes == 9 * GIB


def test_file_cache_can_be_dropped_and_shared_memory_can_not(machine):
    stat = f"anon {GIB}\nfile {6 * GIB}\nshmem {2 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}\n"
    room = find_room(machine(group_v2(POD, limit=10 * GIB, current=7 * GIB, stat=stat)))
    assert room.free_bytes == 7 * GIB


def test_a_limit_that_only_slows_down_counts_as_one(machine):
    assert find_room(machine(group_v2(POD, limit=64 * GIB, high=12 * GIB, current=2 * GIB))).free_bytes == 10 * GIB


def test_version_1_is_understood(machine):
    files = group_v1("kube/pod", limit=12 * GIB, usage=5 * GIB, stat=f"total_inactive_file {2 * GIB}\ntotal_active_file 0\n")
    root = machine(files | group_v1("", limit=9223372036854771712), group="11:cpu,cpuacct:/kube/pod\n4:memory:/kube/pod\n0::/")
    assert find_room(root) == (find_room(root).__class__)(12 * GIB, 9 * GIB)


def test_the_node_itself_may_have_less_than_the_limit(machine):
    choice = choose(machine(group_v2(POD, limit=64 * GIB), available=10 * GIB))
    assert choice.mode == "windowed"
    assert "10.0 GiB free" in choice.reason


def test_without_any_limit_the_node_decides(machine):
    choice = choose(machine(group_v2(POD)))
    assert choice.mode == "full"
    assert "no memory limit, 256.0 GiB free" in choice.reason


def test_where_nothing_can_be_read_there_is_no_limit(tmp_path):
    choice = choose(tmp_path)
    assert choice.mode == "full"
    assert choice.reason == "weights: 16.0 GiB buffered in full (no memory limit)"


@pytest.mark.parametrize("nonsense", ["", "lots\n", "-5\n", "٣\n", "\0"])
def test_files_that_hold_nonsense_are_no_limit(machine, nonsense):
    files = dict.fromkeys(group_v2(POD), nonsense) | {"proc/meminfo": nonsense}
    assert choose(machine(files)).mode == "full"


def test_full_that_was_asked_for_and_can_not_fit_is_windowed_and_says_so(machine):
    root = machine(group_v2(POD, limit=8 * GIB))
    assert choose(root, requested="full").mode == "windowed"
    assert "would not fit" in choose(root, requested="full").reason
    assert choose(machine(group_v2(POD, limit=64 * GIB)), requested="full").mode == "full"


def test_a_size_that_was_asked_for_is_taken(machine):
    root = machine(group_v2(POD, limit=64 * GIB))
    choice = choose(root, requested=str(2 * GIB))
    assert (choice.mode, choice.ring_bytes) == ("windowed", 2 * GIB)
    assert choice.reason == "weights: windowed, 2.0 GiB of 16.0 GiB at a time, as asked for"


def test_a_size_that_covers_the_checkpoint_means_full_if_that_fits(machine):
    assert choose(machine(group_v2(POD, limit=64 * GIB)), requested="40000000000").mode == "full"
    tight = choose(machine(group_v2(POD, limit=12 * GIB)), requested="40000000000")
    assert (tight.mode, tight.ring_bytes) == ("windowed", 4 * GIB)


def test_zero_means_the_largest_tensor_and_less_than_it_is_raised(machine):
    root = machine(group_v2(POD, limit=64 * GIB))
    assert choose(root, requested="0").ring_bytes == GIB
    assert "raised" not in choose(root, requested="0").reason
    raised = choose(root, requested=str(100 * MIB))
    assert raised.ring_bytes == GIB
    assert "raised from 100.0 MiB to its largest tensor" in raised.reason


def test_a_size_that_was_asked_for_and_does_not_fit_is_taken_with_a_warning(machine):
    choice = choose(machine(group_v2(POD, limit=6 * GIB)), requested=str(5 * GIB))
    assert choice.ring_bytes == 5 * GIB
    assert "that is more than the 3.5 GiB left for it" in choice.reason
