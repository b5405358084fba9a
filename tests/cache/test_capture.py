"""A capture publishes a complete and quiet tree, or says why not and leaves nothing behind."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from cache_samples import (
    ALL,
    DIGEST,
    ENVELOPE,
    SIGNER,
    SMALL_TREE,
    entry,
    leftovers,
    make_tree,
    manifest,
    publish,
    snapshot,
    start,
)

from glowplug import temporary
from glowplug.cache import capture as capturing
from glowplug.cache import pack as packing
from glowplug.cache.capture import Incomplete, capture, check_complete, check_publishable, wait_until_quiet
from glowplug.cache.deadline import Deadline
from glowplug.cache.pack import TreeChanged
from glowplug.cache.repository import Repository
from glowplug.cache.secrets import SecretScan
from glowplug.cache.tree import TreeFile, scan
from glowplug.errors import DeadlineExceeded, Forbidden, LocalError, SecretFound
from glowplug.store.memory import MemoryStore
from glowplug.units import MIB


def keys(store):
    return [info.key for info in store.list("")]


@pytest.fixture
def live(tmp_path):
    return make_tree(tmp_path / "live", SMALL_TREE)


# --- quiet ----------------------------------------------------------------------------------------------------------------------


def test_a_tree_that_is_still_written_to_is_waited_for(live):
    writes = iter(range(3))

    def wait(seconds):
        time.sleep(seconds)
        number = next(writes, None)
        if number is not None:
            make_tree(live, {"vllm/growing": bytes(number)}, mtime_ns=time.time_ns())

    begun = time.monotonic()
    files = wait_until_quiet(live, ALL, settle_s=0.05, deadline=Deadline(20, step="publish"), wait=wait)
    assert time.monotonic() - begun >= 0.15
    assert {file.path: file.size_bytes for file in files}["vllm/growing"] == 2


def test_a_file_that_vanishes_or_is_only_touched_counts_as_a_change(live):
    changes = [(live / "triton/XYZ/kernel.cubin").unlink, lambda: os.utime(live / "inductor/ab/cabc.so")]
    waits = []

    def wait(seconds):
        waits.append(seconds)
        time.sleep(seconds)
        if changes:
            changes.pop(0)()

    files = wait_until_quiet(live, ALL, settle_s=0.05, deadline=Deadline(20, step="publish"), wait=wait)
    assert len(waits) >= 3
    assert "triton/XYZ/kernel.cubin" not in {file.path for file in files}


def test_a_tree_that_never_becomes_quiet_ends_at_the_deadline(live):
    def wait(seconds):
        time.sleep(seconds)
        os.utime(live / "inductor/ab/cabc.so")

    with pytest.raises(DeadlineExceeded):
        wait_until_quiet(live, ALL, settle_s=0.05, deadline=Deadline(0.3, step="publish"), wait=wait)


def test_an_empty_tree_is_not_published(store, tmp_path):
    with pytest.raises(LocalError, match="holds no cache files"):
        publish(store, make_tree(tmp_path / "live", {"unknown/x": b"x"}))
    assert keys(store) == []


# --- complete -------------------------------------------------------------------------------------------------------------------


def ranks(*paths):
    return [TreeFile(f"vllm/torch_compile_cache/{path}", 1, 0o644, 1, 1, compiled=True) for path in paths]


def test_every_rank_must_have_saved_its_graphs():
    both = ranks("aa/rank_0_0/backbone/g", "aa/rank_1_0/backbone/g", "aa/cache_key_factors.json")
    check_complete(both, ranks=2)
    check_complete(both, ranks=1)
    with pytest.raises(Incomplete, match=r"aa holds 1 of 2 ranks \(rank_0_0\)") as caught:
        check_complete(both[:1], ranks=2)
    assert caught.value.object == "vllm/torch_compile_cache/aa"


def test_every_key_is_looked_at_by_itself():
    with pytest.raises(Incomplete, match="torch_aot_compile/bb"):
        check_complete(
            ranks("aa/rank_0_0/g", "aa/rank_1_0/g", "torch_aot_compile/bb/rank_0_0/model", "torch_aot_compile/cc/rank_0_0/model"),
            ranks=2,
        )


def test_caches_without_ranks_are_complete():
    check_complete([TreeFile("inductor/ab/c.so", 1, 0o644, 1, 1, compiled=True)], ranks=8)
    check_complete(ranks("not_rank_0_0x/g"), ranks=8)


def test_an_incomplete_tree_is_not_published(store, live):
    with pytest.raises(Incomplete):
        publish(store, live, ranks=2)
    assert keys(store) == []


# --- changes while packing ------------------------------------------------------------------------------------------------------


def _once(monkeypatch, change):
    """Change the tree at the moment when its first file has been read, the first time only."""
    check, done = SecretScan.check, []

    def changing(self, path, data):
        if not done:
            done.append(path)
            change(path)
        check(self, path, data)

    monkeypatch.setattr(SecretScan, "check", changing)


@pytest.mark.parametrize(
    "what", ["grows", "shrinks", "is touched", "vanishes", "becomes a link", "becomes a folder", "becomes a pipe"]
)
def test_a_file_that_changes_while_it_is_packed_is_packed_again(store, live, monkeypatch, what, tmp_path):
    last = live / "vllm/torch_compile_cache/aa/rank_0_0/backbone/graph"

    def change(_):
        if what == "grows":
            last.write_bytes(b"longer" * 2000)
        elif what == "shrinks":
            last.write_bytes(b"short")
        elif what == "is touched":
            os.utime(last)
        else:
            if what == "becomes a link":
                shutil.copy2(last, tmp_path / "elsewhere")  # as long and as old
            last.unlink()
            if what == "becomes a link":
                last.symlink_to(tmp_path / "elsewhere")
            elif what == "becomes a folder":
                last.mkdir()
            elif what == "becomes a pipe":
                os.mkfifo(last)

    _once(monkeypatch, change)
    captured = publish(store, live)
    start(store, make_tree(tmp_path / "there", {}))
    kept = {
        path: state for path, state in snapshot(live).items() if os.path.isfile(live / path) and not os.path.islink(live / path)
    }
    assert snapshot(tmp_path / "there") == kept
    assert {file.path for file in captured.manifest.files} == set(kept)
    assert leftovers(live) == []


def test_a_tree_that_changes_every_time_is_given_up(store, live, monkeypatch):
    check = SecretScan.check

    def changing(self, path, data):
        os.utime(live / path)
        check(self, path, data)

    monkeypatch.setattr(SecretScan, "check", changing)
    with pytest.raises(TreeChanged, match="changed while it was packed"):
        publish(store, live)
    assert keys(store) == []
    assert leftovers(live) == []


def test_a_pipe_in_the_place_of_a_file_never_blocks(store, live):
    files = scan(live, ALL)
    (live / files[0].path).unlink()
    os.mkfifo(live / files[0].path)
    with open(os.devnull, "wb") as nowhere, pytest.raises(TreeChanged, match="no longer a plain file"):
        packing.write_pack(live, files, nowhere, scan=SecretScan({}), deadline=Deadline(5, step="publish"))
    assert keys(store) == []


# --- what no reader would take is not published ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"back\\slash", b"not-utf8-\xff"])
def test_a_name_that_readers_refuse_is_not_published(store, live, name):
    with open(os.path.join(os.fsencode(live), b"inductor", name), "wb") as file:
        file.write(b"x")
    with pytest.raises(LocalError, match="can't be published") as caught:
        publish(store, live)
    assert caught.value.object.startswith("inductor/")
    assert keys(store) == []


def test_a_time_that_readers_refuse_is_not_published(store, live):
    os.utime(live / "inductor/ab/cabc.so", ns=(-1, -1))
    with pytest.raises(LocalError, match="before 1970"):
        publish(store, live)
    assert keys(store) == []


def test_whatever_is_publishable_is_accepted_by_readers(live):
    files = scan(live, ALL)
    check_publishable(files)
    from glowplug.cache.manifest import Manifest

    rows = [entry(file.path, size_bytes=file.size_bytes, mode=file.mode, mtime_ns=file.mtime_ns) for file in files]
    assert Manifest.parse(manifest(rows).document)


@pytest.mark.parametrize(
    "content", [b'{"VLLM_API_KEY": "sk-0123456789"}', b"HF_TOKEN=hf_" + b"a" * 34, b"x AKIAIOSFODNN7EXAMPLE y"]
)
def test_a_tree_that_holds_a_secret_is_not_published_and_the_file_is_named(any_store, live, content):
    make_tree(live, {"vllm/torch_compile_cache/aa/cache_key_factors.json": content})
    with pytest.raises(SecretFound) as caught:
        publish(any_store, live)
    assert caught.value.object == "vllm/torch_compile_cache/aa/cache_key_factors.json"
    assert caught.value.object in caught.value.message
    assert "sk-0123" not in caught.value.line()
    assert keys(any_store) == []
    assert leftovers(live) == []


# --- folders and disks ----------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_read_is_an_error_that_names_it(store, live, monkeypatch):
    def scandir(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(capturing.scan.__globals__["os"], "scandir", scandir)
    with pytest.raises(LocalError, match=r"cannot read .*: Permission denied") as caught:
        publish(store, live)
    assert caught.value.object.startswith(str(live))


def test_a_file_in_the_place_of_our_folder_is_an_error_that_names_it(store, live):
    (live / ".glowplug").write_bytes(b"")
    with pytest.raises(LocalError, match="cannot write the pack") as caught:
        publish(store, live)
    assert caught.value.object == str(live / ".glowplug")
    assert keys(store) == []


def test_a_disk_that_is_full_is_an_error_that_says_so(tmp_path):
    """The kernel stops the pack in the middle of a write."""
    make_tree(tmp_path / "live", {"vllm/big": os.urandom(3 * MIB)})
    code = """
import pathlib, resource, sys
sys.path.insert(0, sys.argv[1])
from cache_samples import publish
from glowplug.errors import LocalError
from glowplug.store.memory import MemoryStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store = MemoryStore()
try:
    publish(store, pathlib.Path(sys.argv[2]))
except LocalError as error:
    print(error.line(), list(store.list("")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__), tmp_path / "live"], capture_output=True, text=True, check=True
    )
    assert "cannot write the pack" in done.stdout
    assert "File too large (free space" in done.stdout
    assert done.stdout.strip().endswith("[]")
    assert leftovers(tmp_path / "live") == []


def test_packs_of_dead_publishers_are_swept_and_a_living_one_s_is_not(store, live):
    make_tree(live / ".glowplug", {"pack-left.tmp": b"x"})
    with open(temporary.create(live / ".glowplug/pack-held.tmp"), "wb"):
        publish(store, live)
    assert leftovers(live) == ["pack-held.tmp"]


def test_a_store_with_a_spool_gets_the_pack_without_a_copy(local_store, live, monkeypatch):
    from glowplug.store import local

    def copying(*_):
        raise AssertionError("copied")

    monkeypatch.setattr(local.shutil, "copyfile", copying)
    publish(local_store, live)
    assert list(local_store.spool.iterdir()) == []


# --- deadlines and refusals of the store ----------------------------------------------------------------------------------------


def test_a_capture_called_off_publishes_nothing(any_store, live):
    deadline = Deadline(60, step="publish")

    def progress(_):
        deadline.cancel("the engine has ended")

    repository = Repository(any_store)
    with pytest.raises(DeadlineExceeded, match="the engine has ended"):
        capture(
            repository,
            ENVELOPE,
            live,
            ALL,
            SIGNER,
            replaces=None,
            cold_start_s=None,
            ranks=1,
            settle_s=0,
            scan_secrets=SecretScan({}),
            deadline=deadline,
            progress=progress,
        )
    assert keys(any_store) == []
    assert leftovers(live) == []


class Refusing(MemoryStore):
    """Refuses one kind of key."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def put_if_absent(self, key, data):
        if self.part in key:
            raise Forbidden(f"{key}: not allowed", object=key)
        return super().put_if_absent(key, data)

    def put_file(self, key, path, *, sha256):
        if self.part in key:
            raise Forbidden(f"{key}: not allowed", object=key)
        return super().put_file(key, path, sha256=sha256)


@pytest.mark.parametrize("part", ["packs/", "envelope.json", "generations/", "latest"])
def test_a_store_that_refuses_any_step_shows_readers_nothing(live, part):
    store = Refusing(part)
    with pytest.raises(Forbidden):
        publish(store, live)
    assert Repository(store).latest(DIGEST) is None
    assert leftovers(live) == []


def test_whoever_was_overtaken_says_so_and_changes_nothing(any_store, live, tmp_path):
    repository = Repository(any_store)
    seen = repository.latest(DIGEST)
    first = publish(any_store, make_tree(tmp_path / "other", {"vllm/a": b"1"}))
    assert first.published
    late = publish(any_store, live, replaces=seen)
    assert not late.published
    assert repository.latest(DIGEST).generation == first.manifest.digest
    pointer = repository.latest(DIGEST)
    assert publish(any_store, live, replaces=pointer).published
    assert not publish(any_store, live, replaces=pointer).published


def test_whoever_was_overtaken_while_packing_sends_nothing(store, live, tmp_path):
    first = publish(store, make_tree(tmp_path / "other", {"vllm/a": b"1"})).manifest
    assert not publish(store, live, replaces=None).published
    assert [key for key in keys(store) if "packs" in key] == [f"v1/{DIGEST}/packs/{first.pack.sha256}.tar.zst"]


def test_a_broken_pointer_is_replaced_by_the_next_publication(any_store, live, tmp_path):
    any_store.put(f"v1/{DIGEST}/latest", b"broken")
    captured = publish(any_store, live, replaces=None)
    assert captured.published
    assert start(any_store, make_tree(tmp_path / "there", {})).generation == captured.manifest.digest


def test_progress_adds_up_to_the_bytes_of_the_tree(store, live):
    told = []
    capture(
        Repository(store),
        ENVELOPE,
        live,
        ALL,
        SIGNER,
        replaces=None,
        cold_start_s=None,
        ranks=1,
        settle_s=0,
        scan_secrets=SecretScan({}),
        deadline=Deadline(60, step="publish"),
        progress=told.append,
    )
    assert sum(told) == sum(map(len, SMALL_TREE.values()))


def test_a_capture_beside_a_busy_engine_publishes_a_consistent_tree(local_store, tmp_path):
    """A writer replaces all files again and again, atomically and pausing in between, as compilers do."""
    live, stop = make_tree(tmp_path / "live", {f"inductor/{number}": b"0" * 999 for number in range(20)}), threading.Event()

    def write():
        for generation in range(1, 30):
            if stop.is_set():
                return
            for number in range(20):
                temporary = live / f"inductor/.{os.getpid()}.{number}.tmp"
                temporary.write_bytes(b"%d" % generation * 999)
                temporary.replace(live / f"inductor/{number}")
        # then it is quiet

    thread = threading.Thread(target=write)
    thread.start()
    repository = Repository(local_store)
    captured = capture(
        repository,
        ENVELOPE,
        live,
        ALL,
        SIGNER,
        replaces=None,
        cold_start_s=None,
        ranks=1,
        settle_s=0.3,
        scan_secrets=SecretScan({}),
        deadline=Deadline(60, step="publish"),
    )
    stop.set()
    thread.join()
    start(local_store, make_tree(tmp_path / "there", {}))
    assert len({content for *_, content in snapshot(tmp_path / "there").values()}) == 1
    assert len(captured.manifest.files) == 20
