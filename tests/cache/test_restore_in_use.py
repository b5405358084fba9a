"""A restore into a tree that an engine uses already: whole files, indexes last, and what the engine wrote itself is kept."""

from __future__ import annotations

import os
import threading

import pytest
from cache_samples import DIGEST, SMALL_TREE, TRUST, leftovers, make_tree, publish, snapshot

from glowplug.cache import layout, placing
from glowplug.cache.deadline import Deadline
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.errors import DeadlineExceeded, LocalError

INDEXES = {
    "vllm/torch_compile_cache/aa/rank_0_0/backbone/vllm_compile_cache.py": b"index",
    "vllm/torch_compile_cache/torch_aot_compile/bb/rank_0_0/model": b"model",
    "triton/XYZ/__grp__kernel.json": b"group",
}
TREE = {**SMALL_TREE, **INDEXES, "vllm/modelinfos/llama.json": b"infos"}


def start(store, live, *, deadline=None, in_use=lambda: True):
    repository = Repository(store)
    manifest = repository.load(DIGEST, repository.latest(DIGEST).generation, TRUST)
    pack_key = layout.pack_key(DIGEST, manifest.pack.sha256)
    return restore(store, pack_key, manifest, live, deadline=deadline or Deadline(60, step="restore"), in_use=in_use)


@pytest.fixture
def published(store, tmp_path):
    source = make_tree(tmp_path / "source", TREE)
    publish(store, source)
    return snapshot(source)


@pytest.fixture
def live(tmp_path):
    return make_tree(tmp_path / "live", {})


@pytest.fixture
def moved(monkeypatch):
    """Every rename, in order: the target's path."""
    seen, rename = [], os.rename

    def noted(source, target):
        seen.append(str(target))
        rename(source, target)

    monkeypatch.setattr(placing.os, "rename", noted)
    return seen


def test_all_arrives_and_a_restart_fetches_nothing(store, published, live):
    assert start(store, live).fetched
    assert snapshot(live) == published
    assert leftovers(live) == []
    assert not start(store, live).fetched


@pytest.mark.usefixtures("published")
def test_what_is_read_first_is_placed_first_and_indexes_last(store, live, moved):
    start(store, live)
    placed = [os.path.relpath(path, live) for path in moved if ".glowplug" not in path]
    assert placed[0] == "vllm/modelinfos/llama.json"
    assert set(placed[-len(INDEXES) - 1 :]) == {*INDEXES, "vllm/torch_compile_cache/aa/cache_key_factors.json"}
    assert set(placed) == set(TREE)


def test_no_folder_is_moved_and_what_is_open_stays_open(store, published, tmp_path):
    """An engine holds files and folders open; it keeps them, and sees the new ones."""
    path = "inductor/ab/cabc.so"
    live = make_tree(tmp_path / "live", {path: b"old", "inductor/ab/own": b"own"})
    folder = os.open(live / "inductor/ab", os.O_RDONLY)
    with open(live / path, "rb") as held:
        start(store, live)
        assert held.read() == b"old"
    assert os.stat(folder).st_ino == os.stat(live / "inductor/ab").st_ino
    assert sorted(os.listdir(folder)) == ["cabc.so", "own"]
    os.close(folder)
    assert {name: state for name, state in snapshot(live).items() if name != "inductor/ab/own"} == published


def test_what_the_engine_wrote_meanwhile_is_kept_and_what_lay_there_before_is_replaced(store, published, tmp_path):
    new, changed, old = "vllm/modelinfos/llama.json", "inductor/ab/cabc.so", "triton/XYZ/kernel.cubin"
    live = make_tree(tmp_path / "live", {changed: b"before", old: b"before"})

    def in_use():
        make_tree(live, {new: b"the engine's", changed: b"the engine's"}, mtime_ns=1_900_000_000_000_000_000)
        return True

    start(store, live, in_use=in_use)
    found = {path: content for path, (*_, content) in snapshot(live).items()}
    assert (found[new], found[changed]) == (b"the engine's", b"the engine's")
    assert found == {path: content for path, (*_, content) in published.items()} | {new: found[new], changed: found[changed]}
    assert leftovers(live) == []
    assert start(store, live, in_use=lambda: False).fetched  # it is not taken for the generation, whole as it is


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("obstacle", ["link", "file", "folder"])
def test_where_something_else_lies_in_the_way_nothing_is_placed(store, tmp_path, obstacle):
    live = make_tree(tmp_path / "live", {"vllm/own": b"own"})
    outside = make_tree(tmp_path / "outside", {})
    if obstacle == "link":
        os.symlink(outside, live / "inductor")
    elif obstacle == "file":
        (live / "inductor").write_bytes(b"")
    else:
        (live / "inductor/ab/cabc.so").mkdir(parents=True)
    before = snapshot(live)
    with pytest.raises(LocalError, match="place"):
        start(store, live)
    assert snapshot(live) == before
    assert snapshot(outside) == {}
    assert leftovers(live) == []


def test_a_disk_that_fails_half_way_leaves_whole_files(store, published, live, monkeypatch):
    rename, left = os.rename, [3]

    def failing(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(placing.os, "rename", failing)
    with pytest.raises(LocalError, match="Input/output error"):
        start(store, live)
    monkeypatch.undo()
    found = snapshot(live)
    assert len(found) == 3
    assert found.items() <= published.items()
    assert leftovers(live) == []
    assert start(store, live).fetched
    assert snapshot(live) == published


@pytest.mark.usefixtures("published")
def test_called_off_before_it_is_placed_it_leaves_nothing(store, live):
    deadline = Deadline(60, step="restore")

    def in_use():
        deadline.cancel("the engine was ready before it was done")
        return True

    with pytest.raises(DeadlineExceeded, match="the engine was ready"):
        start(store, live, deadline=deadline, in_use=in_use)
    assert snapshot(live) == {}
    assert leftovers(live) == []


def test_whoever_calls_it_off_while_it_is_placed_waits_for_the_last_file(store, published, live, monkeypatch):
    deadline, rename, threads = Deadline(60, step="restore"), os.rename, []
    seen = []

    def calling_off(source, target):
        if not threads:
            threads.append(threading.Thread(target=lambda: (deadline.cancel("enough"), seen.append(snapshot(live)))))
            threads[0].start()
        rename(source, target)

    monkeypatch.setattr(placing.os, "rename", calling_off)
    start(store, live, deadline=deadline)
    threads[0].join(10)
    assert seen == [published]
