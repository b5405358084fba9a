"""A restore happens as a whole or not at all, whatever lies in the live tree and whenever it is called off."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from cache_samples import DIGEST, SMALL_TREE, TRUST, entry, leftovers, make_tree, pack_of, plant, publish, snapshot, start

from glowplug.cache import layout
from glowplug.cache import restore as restoring
from glowplug.cache.deadline import Deadline
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.errors import DeadlineExceeded, LocalError, Unreachable
from glowplug.store.memory import MemoryStore
from glowplug.units import MIB


@pytest.fixture
def published(store, tmp_path):
    """A store with one generation, and what it holds."""
    source = make_tree(tmp_path / "source", SMALL_TREE)
    publish(store, source)
    return snapshot(source)


@pytest.fixture
def live(tmp_path):
    return make_tree(tmp_path / "live", {})


# --- over what is there already -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("published")
def test_what_lies_in_the_way_is_replaced_and_what_does_not_is_kept(store, published, tmp_path):
    live = make_tree(
        tmp_path / "live",
        {
            "vllm/torch_compile_cache/aa/cache_key_factors.json": b"old, and longer than the new one",
            "vllm/torch_compile_cache/bb/own": (b"of this node", 0o600),
            "inductor/locks/x.lock": b"",
            "unknown/family": b"not ours",
            "inductor/ab/cabc.so/own": b"a file where the generation has a file in a folder",
            "triton/XYZ": b"a file where the generation has a folder",
        },
    )
    own = {path: state for path, state in snapshot(live).items() if path.endswith(("own", ".lock", "family"))}
    own.pop("inductor/ab/cabc.so/own")
    start(store, live)
    assert snapshot(live) == published | own
    assert leftovers(live) == []


def test_a_second_generation_replaces_the_first_and_keeps_what_only_that_had(store, tmp_path, live):
    publish(store, make_tree(tmp_path / "one", {"vllm/a": b"1", "vllm/b": b"1"}))
    start(store, live)
    publish(store, make_tree(tmp_path / "two", {"vllm/b": b"22", "triton/c": b"22"}))
    start(store, live)
    assert {path: content for path, (*_, content) in snapshot(live).items()} == {
        "vllm/a": b"1",
        "vllm/b": b"22",
        "triton/c": b"22",
    }


def test_nothing_is_written_through_a_link_and_none_is_kept(store, published, tmp_path):
    outside = make_tree(tmp_path / "outside", {"torch_compile_cache/aa/cache_key_factors.json": b"not ours", "x": b"not ours"})
    before = snapshot(outside)
    live = make_tree(tmp_path / "live", {"inductor/own": b"own", "triton/own": b"own"})
    os.symlink(outside, live / "vllm")
    os.symlink(outside, live / "inductor/ab")
    (live / "triton/XYZ").mkdir()
    os.symlink(outside / "x", live / "triton/XYZ/kernel.cubin")
    start(store, live)
    assert snapshot(outside) == before
    restored = snapshot(live)
    assert set(restored) == {*published, "inductor/own", "triton/own"}
    assert {path: restored[path] for path in published} == published


def test_a_failure_between_the_folders_puts_everything_back(store, tmp_path, monkeypatch):
    """Two of three families are in place when the disk fails."""
    own = {"vllm/own": b"v", "inductor/own": b"i", "triton/own": b"t"}
    publish(store, make_tree(tmp_path / "source", SMALL_TREE))
    rename = os.rename
    for steps in range(7):
        live = make_tree(tmp_path / f"live{steps}", own)
        before = snapshot(live)
        left = [steps]

        def failing(source, target, left=left):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(5, "Input/output error")
            rename(source, target)

        monkeypatch.setattr(restoring.os, "rename", failing)
        with pytest.raises(LocalError, match="Input/output error"):
            start(store, live)
        monkeypatch.undo()
        assert snapshot(live) == before
        assert leftovers(live) == []
        assert start(store, live).fetched


def test_what_a_killed_restore_or_capture_left_is_removed(store, published, live):
    make_tree(live / ".glowplug", {"staging-1/new/vllm/a": b"half", "pack-1.tmp": b"half", "lock": b""})
    start(store, live)
    assert snapshot(live) == published
    assert leftovers(live) == []


# --- again on the same node -----------------------------------------------------------------------------------------------------


class CountingStore(MemoryStore):
    """Counts reads of content."""

    reads = 0

    def read_into(self, key, begin, buffer, *, if_match=None):
        self.reads += 1
        return super().read_into(key, begin, buffer, if_match=if_match)


@pytest.fixture
def counting(tmp_path):
    store = CountingStore()
    publish(store, make_tree(tmp_path / "source", SMALL_TREE))
    return store


def test_a_restart_on_the_same_node_fetches_nothing(counting, live):
    assert start(counting, live).fetched
    reads = counting.reads
    again = start(counting, live)
    assert not again.fetched
    assert counting.reads == reads
    assert (again.files, again.bytes) == (len(SMALL_TREE), sum(map(len, SMALL_TREE.values())))


def _append(live):
    with open(live / "inductor/ab/cabc.so", "ab") as file:
        file.write(b"x")


def _touch(live):
    os.utime(live / "inductor/ab/cabc.so")


def _replace_by_link(live):
    path = live / "inductor/ab/cabc.so"
    path.rename(live / "elsewhere")
    path.symlink_to(live / "elsewhere")


def _reboot(live):
    note = live / ".glowplug/installed.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"boot": "another"}))


def _tear(live):
    (live / ".glowplug/installed.json").write_text('{"gen')


def _unlink(live):
    (live / "inductor/ab/cabc.so").unlink()


@pytest.mark.parametrize("change", [_append, _touch, _replace_by_link, _reboot, _tear, _unlink])
def test_a_tree_that_may_have_changed_is_fetched_again(counting, live, change, tmp_path):
    start(counting, live)
    change(live)
    assert start(counting, live).fetched
    expected = snapshot(tmp_path / "source")
    assert {path: state for path, state in snapshot(live).items() if path in expected} == expected
    assert not start(counting, live).fetched


def test_where_the_kernel_does_not_tell_its_boot_nothing_is_believed(counting, live, monkeypatch):
    monkeypatch.setattr(restoring, "_boot_id", lambda: "")
    assert start(counting, live).fetched
    assert start(counting, live).fetched


def test_the_engines_own_new_files_do_not_make_a_restart_fetch_again(counting, live):
    start(counting, live)
    make_tree(live, {"vllm/new": b"compiled"})
    assert not start(counting, live).fetched


# --- disks that do not take it --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Mounts small file systems, where that is allowed."""
    mounted = []

    def mount(options):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    if not shutil.which("mount"):
        pytest.skip("needs mount")
    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def test_a_disk_without_room_is_refused_before_anything_is_fetched(counting, small_disk):
    disk = small_disk("size=1m")
    with pytest.raises(LocalError, match="free") as caught:
        start(counting, disk)
    assert caught.value.object == str(disk)
    assert counting.reads == 0
    assert os.listdir(disk) == []


def test_a_disk_that_fills_up_meanwhile_is_left_as_it_was(store, tmp_path, small_disk):
    """Inodes run out: the space was there."""
    publish(store, make_tree(tmp_path / "many", {f"vllm/{number}": b"x" for number in range(100)}))
    live = make_tree(small_disk("size=64m,nr_inodes=60"), {"vllm/own": b"own"})
    before = snapshot(live)
    with pytest.raises(LocalError, match="No space left") as caught:
        start(store, live)
    assert "free space" in caught.value.hint
    assert snapshot(live) == before
    assert leftovers(live) == []


def test_a_limit_on_file_size_leaves_nothing_half_written(tmp_path, local_store):
    """Runs where no file system can be mounted: the kernel stops the write in the middle."""
    publish(local_store, make_tree(tmp_path / "source", {"vllm/a": b"small", "vllm/big": os.urandom(2 * MIB)}))
    make_tree(tmp_path / "live", {"vllm/own": b"own"})
    code = """
import pathlib, resource, sys
sys.path.insert(0, sys.argv[1])
from cache_samples import start
from glowplug.errors import LocalError
from glowplug.store.local import LocalStore
scratch = pathlib.Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    start(LocalStore(scratch / "store", url="file://store"), scratch / "live")
except LocalError as error:
    print(error.line())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__), tmp_path], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert "free space" in done.stdout
    assert set(snapshot(tmp_path / "live")) == {"vllm/own"}
    assert leftovers(tmp_path / "live") == []


@pytest.mark.usefixtures("published")
def test_a_root_that_is_gone_is_an_error_that_names_it(store, tmp_path):
    with pytest.raises(LocalError, match="nowhere") as caught:
        start(store, tmp_path / "nowhere")
    assert caught.value.object == str(tmp_path / "nowhere")


@pytest.mark.usefixtures("published")
def test_a_file_in_the_place_of_our_folder_is_an_error_that_names_the_root(store, live):
    (live / ".glowplug").write_bytes(b"")
    with pytest.raises(LocalError) as caught:
        start(store, live)
    assert str(live) in caught.value.line()
    assert os.listdir(live) == [".glowplug"]


# --- deadlines ------------------------------------------------------------------------------------------------------------------


class StuckStore(MemoryStore):
    """Delivers content only when it is let go."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def read_into(self, key, begin, buffer, *, if_match=None):
        self.asked.set()
        self.let_go.wait(20)
        return super().read_into(key, begin, buffer, if_match=if_match)


@pytest.fixture
def stuck(tmp_path):
    store = StuckStore()
    publish(store, make_tree(tmp_path / "source", SMALL_TREE))
    yield store
    store.let_go.set()


def in_background(store, live, deadline):
    errors = []

    def work():
        try:
            start(store, live, deadline=deadline)
        except Exception as error:  # noqa: BLE001  looked at by the test
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def test_a_store_that_hangs_is_left_behind_at_the_deadline(stuck, live):
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"restore took longer than 0\.2 s") as caught:
        start(stuck, live, deadline=Deadline(0.2, step="restore"))
    assert time.monotonic() - begun < 5
    assert "--restore-deadline" in caught.value.hint
    assert snapshot(live) == {}
    assert leftovers(live) == []


def test_a_late_restore_never_becomes_visible(stuck, live):
    deadline = Deadline(60, step="restore")
    thread, errors = in_background(stuck, live, deadline)
    stuck.asked.wait(10)
    deadline.cancel("the engine starts")
    stuck.let_go.set()
    thread.join(10)
    assert isinstance(errors[0], DeadlineExceeded)
    assert "the engine starts" in errors[0].message
    assert snapshot(live) == {}
    assert leftovers(live) == []


def test_a_restore_called_off_just_before_its_end_never_becomes_visible(store, tmp_path, live):
    publish(store, make_tree(tmp_path / "source", SMALL_TREE))
    repository = Repository(store)
    manifest = repository.load(DIGEST, repository.latest(DIGEST).generation, TRUST)
    deadline, left = Deadline(60, step="restore"), [manifest.size_bytes]

    def progress(count):
        left[0] -= count
        if left[0] == 0:  # the last byte is written; nothing is visible yet
            assert snapshot(live) == {}
            deadline.cancel("enough")

    with pytest.raises(DeadlineExceeded, match="enough"):
        restore(store, layout.pack_key(DIGEST, manifest.pack.sha256), manifest, live, deadline=deadline, progress=progress)
    assert left == [0]
    assert snapshot(live) == {}
    assert leftovers(live) == []


def test_at_any_moment_of_calling_off_the_tree_is_old_or_new(store, published, tmp_path):
    for step in range(24):
        live = make_tree(tmp_path / f"live{step}", {"vllm/own": b"own"})
        old = snapshot(live)
        deadline = Deadline(60, step="restore")
        thread, errors = in_background(store, live, deadline)
        time.sleep(step * 0.0015)
        deadline.cancel("the engine starts")
        seen = snapshot(live)  # the engine starts here
        thread.join(10)
        assert seen in (old, old | published)
        assert snapshot(live) == seen
        assert bool(errors) == (seen == old)


def test_a_store_that_breaks_off_leaves_nothing(live, tmp_path):
    class Broken(MemoryStore):
        def read_into(self, key, begin, buffer, *, if_match=None):
            if begin:
                raise Unreachable("connection reset", object=key)
            return super().read_into(key, begin, buffer, if_match=if_match)

    store = Broken()
    publish(store, make_tree(tmp_path / "source", {"vllm/big": os.urandom(9 * MIB)}))
    with pytest.raises(Unreachable, match="connection reset"):
        start(store, live)
    assert snapshot(live) == {}
    assert leftovers(live) == []


def test_an_error_while_writing_never_blocks_the_reader(store, live, monkeypatch):
    """The writing thread dies at once, while far more than the queue holds is still to come."""
    content = {f"vllm/{number:03}": bytes(MIB) for number in range(100)}
    plant(store, [entry(path, data) for path, data in content.items()], pack_of(content))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glowplug.cache.unpack._Writer._write", full)
    with pytest.raises(LocalError, match="No space left"):
        start(store, live)
    assert leftovers(live) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "glowplug-write"]
