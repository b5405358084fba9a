"""Publishers that race, and publishers that are killed: readers always see one whole generation."""

import multiprocessing
import random
import threading
import time

import pytest
from cache_samples import ALL, DIGEST, ENVELOPE, SIGNER, TRUST, make_tree, publish, snapshot, start

from glowplug.cache.capture import capture
from glowplug.cache.deadline import Deadline
from glowplug.cache.repository import Repository
from glowplug.cache.secrets import SecretScan
from glowplug.cache.verify import verify_generation
from glowplug.store.local import LocalStore

PUBLISHERS = 8


def test_of_eight_publishers_one_wins_and_readers_always_see_a_whole_generation(any_store, tmp_path):
    repository = Repository(any_store)
    trees = [make_tree(tmp_path / f"tree{number}", tree_of(number)) for number in range(PUBLISHERS)]
    ended, seen = threading.Event(), set()

    def read():
        while not ended.is_set():
            pointer = repository.latest(DIGEST)
            if pointer is not None:
                seen.add((pointer.generation, verify_generation(repository, DIGEST, pointer.generation, TRUST).problem))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    winners = set()
    for _ in range(3):
        (winner,) = [captured.manifest.digest for captured in race(any_store, trees) if captured.published]
        assert repository.latest(DIGEST).generation == winner
        winners.add(winner)
    ended.set()
    for reader in readers:
        reader.join()
    assert seen <= {(winner, "") for winner in winners}
    start(any_store, make_tree(tmp_path / "live", {}))
    assert len({content for *_, content in snapshot(tmp_path / "live").values()}) == 1


def test_eight_publishers_of_the_same_tree_end_well(any_store, tmp_path):
    """Same content, same second: even the generation's name may be the same."""
    trees = [make_tree(tmp_path / f"tree{number}", tree_of(7)) for number in range(PUBLISHERS)]
    assert sorted(captured.published for captured in race(any_store, trees)) == [False] * 7 + [True]
    start(any_store, make_tree(tmp_path / "live", {}))
    assert snapshot(tmp_path / "live") == snapshot(trees[0])


def race(store, trees):
    """Publish all trees at once, each in place of what is the newest now."""
    pointer, barrier, results = Repository(store).latest(DIGEST), threading.Barrier(len(trees)), []

    def work(tree):
        barrier.wait(20)
        results.append(publish(store, tree, replaces=pointer))

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(trees)
    return results


def tree_of(number):
    return {f"inductor/{name}": b"%d " % number * 20_000 for name in range(12)}


def capture_again_and_again(scratch, ready):
    """A publisher's life until it is killed: compile, capture, compile, capture."""
    store = LocalStore(scratch / "store", url="file://store")
    repository = Repository(store)
    ready.send("ready")
    for number in range(1, 10_000):
        make_tree(scratch / "tree", tree_of(number))
        capture(
            repository,
            ENVELOPE,
            scratch / "tree",
            ALL,
            SIGNER,
            replaces=repository.latest(DIGEST),
            cold_start_s=None,
            ranks=1,
            settle_s=0,
            scan_secrets=SecretScan({}),
            deadline=Deadline(60, step="publish"),
        )


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["glowplug.cache.capture", "securesystemslib.dsse", "zstandard", "glowplug.store.local"])
    return context


@pytest.mark.parametrize("moment", range(12))
def test_a_publisher_killed_at_any_moment_leaves_a_whole_generation(processes, tmp_path, moment):
    store = LocalStore(tmp_path / "store", url="file://store")
    first = publish(store, make_tree(tmp_path / "tree", tree_of(0)))
    here, there = processes.Pipe(duplex=False)
    child = processes.Process(target=capture_again_and_again, args=(tmp_path, there))
    child.start()
    there.close()
    here.recv()
    time.sleep(moment * 0.013 + random.uniform(0, 0.013))
    child.kill()
    child.join()

    start(store, make_tree(tmp_path / "live", {}))
    restored = snapshot(tmp_path / "live")
    assert len(restored) == 12
    (content,) = {content for *_, content in restored.values()}
    assert content == tree_of(int(content.split()[0]))["inductor/0"]
    if content.startswith(b"0 "):
        assert Repository(store).latest(DIGEST).generation == first.manifest.digest

    make_tree(tmp_path / "tree", tree_of(-1))
    assert publish(store, tmp_path / "tree").published
    start(store, tmp_path / "live")
    assert {content for *_, content in snapshot(tmp_path / "live").values()} == {tree_of(-1)["inductor/0"]}
