"""The node's own copies: read instead of the store, never believed, bounded, and shared by wrappers at once."""

import dataclasses
import errno
import json
import multiprocessing
import os
import threading
import time

import pytest
from cache_samples import DIGEST, SIGNER, STRANGER, TRUST, make_tree, publish, snapshot, start

from glowplug.cache import layout, node_pack
from glowplug.cache.deadline import Deadline
from glowplug.cache.fetch import RANGE_BYTES
from glowplug.cache.keys import PrivateKey
from glowplug.cache.node_folder import NodeFolder
from glowplug.cache.node_store import NodeStore
from glowplug.cache.quarantine import choose
from glowplug.cache.repository import Repository
from glowplug.cache.trust import Trust
from glowplug.errors import BadSignature, Forbidden, LocalError, ObjectNotFound, Unreachable
from glowplug.store.memory import MemoryStore
from tests.run.program import eventually


class Counting(MemoryStore):
    """Counts what is asked of it, and may be silent or slow."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.error = None
        self.hang = threading.Event()
        self.hang.set()

    def _ask(self, key):
        self.asked.append(key)
        self.hang.wait(30)
        if self.error is not None:
            raise self.error

    def get(self, key, **bounds):
        self._ask(key)
        return super().get(key, **bounds)

    def read_into(self, key, start, buffer, *, if_match=None):
        self._ask(key)
        return super().read_into(key, start, buffer, if_match=if_match)

    def list(self, prefix):
        self._ask(prefix)
        return super().list(prefix)

    def took(self, part):
        """How often something with this in its key was asked for since the last question."""
        count = sum(part in key for key in self.asked)
        self.asked.clear()
        return count


@pytest.fixture
def bucket():
    store = Counting()
    yield store
    store.hang.set()


@pytest.fixture
def node(tmp_path):
    return tmp_path / "node"


@pytest.fixture
def said():
    return []


@pytest.fixture
def near(bucket, node, said):
    """A wrapper's view, new each time."""

    def work(*, trust=TRUST, patience_s=5.0, **options):
        folder = NodeFolder(node, **({"spare": 0} | options))
        return NodeStore(bucket, folder, trust, patience_s=patience_s, say=said.append)

    return work


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "tree", {"inductor/a.so": os.urandom(1000), "inductor/b.so": os.urandom(2 * RANGE_BYTES)})


@pytest.fixture
def made(bucket, tree):
    return publish(bucket, tree).manifest


@pytest.fixture
def kept(made, near, node, tmp_path):
    """A first start on the node has been here."""
    start(near(), make_tree(tmp_path / "first", {}))
    eventually(lambda: pointer_of(node))
    assert names(node) == {f"packs/{made.pack.sha256}.tar.zst", f"generations/{made.digest}.json", f"latest/{DIGEST}"}
    return made


def names(node):
    return {str(path.relative_to(node)) for path in node.rglob("*") if path.is_file() and path.name != "lock"}


def pointer_of(node):
    path = node / "latest" / DIGEST
    return json.loads(path.read_text())["generation"] if path.exists() else None


def restored(store, tmp_path, tree, name="second"):
    live = make_tree(tmp_path / name, {})
    start(store, live)
    assert snapshot(live) == snapshot(tree)


# --- what is served from where --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kept")
def test_the_second_start_on_a_node_asks_the_store_for_the_pointer_alone(near, bucket, tree, tmp_path):
    bucket.asked.clear()
    restored(near(), tmp_path, tree)
    assert bucket.asked == [layout.latest_key(DIGEST)]


@pytest.mark.usefixtures("kept")
def test_a_newer_generation_is_never_hidden(near, bucket, tree, tmp_path):
    make_tree(tree, {"inductor/c.so": b"newer"})
    newer = publish(bucket, tree).manifest
    restored(near(), tmp_path, tree)
    assert Repository(near()).latest(DIGEST).generation == newer.digest


def test_a_verdict_counts_at_once_and_the_generation_is_kept_no_longer(kept, near, bucket, node):
    bucket.put(layout.quarantine_key(DIGEST, kept.digest), b"{}")
    repository = Repository(near())
    choice = choose(repository, DIGEST, repository.latest(DIGEST), TRUST, live_base=None, deadline=Deadline(10, step="restore"))
    assert choice.manifest is None
    assert f"generations/{kept.digest}.json" not in names(node)
    bucket.error = Unreachable("down", object="x")
    with pytest.raises(Unreachable):
        Repository(near()).latest(DIGEST)


def test_leases_and_verdicts_and_writes_go_to_the_store(near, bucket, node):
    store = near()
    for key in (layout.latest_key(DIGEST), layout.lease_key(DIGEST), layout.quarantine_key(DIGEST, "1" * 64)):
        etag = store.put_if_absent(key, b"1")
        store.put_if_match(key, b"2", etag)
        assert (bucket.get(key).data, store.get(key).data, store.head(key).size_bytes) == (b"2", b"2", 1)
    store.put("v1/x", b"3")
    store.delete("v1/x")
    assert [info.key for info in store.list("v1/")] == [info.key for info in bucket.list("v1/")]
    assert names(node) == set()


def test_a_generation_signed_by_a_stranger_is_neither_kept_nor_taken_from_the_node(bucket, near, node, tree, tmp_path):
    made = publish(bucket, tree, signer=STRANGER).manifest
    start(near(trust=Trust((STRANGER.public,))), make_tree(tmp_path / "theirs", {}), trust=Trust((STRANGER.public,)))
    eventually(lambda: pointer_of(node))
    bucket.asked.clear()
    near().get(layout.generation_key(DIGEST, made.digest))
    assert bucket.took("generations") == 1


# --- a store that does not answer -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kept")
def test_without_the_store_the_node_s_last_generation_is_used_and_that_is_said(near, bucket, tree, tmp_path, said):
    bucket.error = Unreachable("the store is down", object="x")
    restored(near(), tmp_path, tree)
    [line] = said
    assert "does not answer, so the newest generation that this node has is used: the store is down" in line


def test_a_store_that_hangs_is_waited_for_briefly_and_then_not_asked_again(kept, near, bucket, tree, tmp_path, said):
    bucket.hang.clear()
    store = near(patience_s=0.2)
    begun = time.monotonic()
    repository = Repository(store)
    choice = choose(repository, DIGEST, repository.latest(DIGEST), TRUST, live_base=None, deadline=Deadline(10, step="restore"))
    restored(store, tmp_path, tree)
    assert time.monotonic() - begun < 5
    assert choice.manifest.digest == kept.digest
    assert "could not be asked" in choice.notice
    assert len(said) == 1


def test_a_node_that_has_nothing_for_an_envelope_waits_for_the_store(made, near, bucket):
    bucket.hang.clear()
    timer = threading.Timer(0.4, bucket.hang.set)
    timer.start()
    assert Repository(near(patience_s=0.1)).latest(DIGEST).generation == made.digest
    timer.join()


@pytest.mark.parametrize("error", [Forbidden("no", object="x"), ObjectNotFound("no", object="x")])
@pytest.mark.usefixtures("kept")
def test_a_store_that_answers_is_believed_whatever_it_says(near, bucket, said, error):
    bucket.error = error
    with pytest.raises(type(error)):
        near().get(layout.latest_key(DIGEST))
    assert said == []


@pytest.mark.parametrize("missing", ["packs", "generations", "latest"])
@pytest.mark.usefixtures("kept")
def test_a_node_that_has_only_a_part_of_a_generation_does_not_offer_it(near, node, bucket, missing):
    for path in (node / missing).iterdir():
        path.unlink()
    bucket.error = Unreachable("the store is down", object="x")
    with pytest.raises(Unreachable):
        near().get(layout.latest_key(DIGEST))


@pytest.mark.usefixtures("kept")
def test_nothing_is_published_over_what_only_the_node_said(near, bucket, tree):
    bucket.error = Unreachable("the store is down", object="x")
    pointer = Repository(near()).latest(DIGEST)
    bucket.error = None
    make_tree(tree, {"inductor/c.so": b"newer"})
    assert not publish(bucket, tree, replaces=pointer).published


# --- hostile contents -----------------------------------------------------------------------------------------------------------


def damage(path, how):
    data = path.read_bytes()
    path.chmod(0o600)
    if how == "flipped":
        path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    elif how == "cut":
        path.write_bytes(data[:-1])
    elif how == "longer":
        path.write_bytes(data + b"x")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "everybody's":
        path.chmod(0o666)
    else:
        path.unlink()
        if how == "a link":
            (path.parent / "elsewhere").write_bytes(data)
            path.symlink_to(path.parent / "elsewhere")
        elif how == "a pipe":
            os.mkfifo(path)
        elif how == "a folder":
            path.mkdir()


HARM = ["flipped", "cut", "longer", "empty", "everybody's", "a link", "a pipe", "a folder"]


@pytest.mark.parametrize("kind", ["packs", "generations"])
@pytest.mark.parametrize("how", HARM)
@pytest.mark.usefixtures("kept")
def test_whatever_lies_on_the_node_the_generation_comes_whole_and_from_the_store_if_need_be(
    near, node, bucket, tree, tmp_path, kind, how
):
    [path] = (node / kind).iterdir()
    damage(path, how)
    bucket.asked.clear()
    restored(near(), tmp_path, tree)
    assert bucket.took(kind) > 0


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"generation": 1}', b'{"generation": "../../x"}', b"[" * 900, b"x" * 5000])
@pytest.mark.usefixtures("kept")
def test_a_node_s_pointer_that_is_garbage_is_none(near, node, bucket, data):
    (node / "latest" / DIGEST).write_bytes(data)
    bucket.error = Unreachable("the store is down", object="x")
    with pytest.raises(Unreachable):
        near().get(layout.latest_key(DIGEST))


@pytest.mark.usefixtures("kept")
def test_a_node_s_pointer_cannot_name_another_envelope_s_generation(near, node, bucket):
    (node / "latest" / ("e" * 64)).write_bytes((node / "latest" / DIGEST).read_bytes())
    bucket.error = Unreachable("the store is down", object="x")
    with pytest.raises(Unreachable):
        near().get(layout.latest_key("e" * 64))


def test_a_forged_manifest_on_the_node_is_no_evidence_against_the_generation(kept, near, node, tree, tmp_path):
    """In the name of a trusted key: from the bucket that would be a reason for quarantine."""
    forger = dataclasses.replace(SIGNER, key=PrivateKey(b"f" * 32))
    document = json.loads(forger.sign(kept.document))
    document["signatures"][0]["keyid"] = SIGNER.keyid
    with pytest.raises(BadSignature):
        TRUST.verify(json.dumps(document).encode())
    (node / "generations" / f"{kept.digest}.json").write_text(json.dumps(document))
    restored(near(), tmp_path, tree)


def test_a_pack_that_is_changed_after_it_was_checked_is_fetched_where_it_was_changed(kept, near, node, bucket, tree, tmp_path):
    store = near()
    key = layout.pack_key(DIGEST, kept.pack.sha256)
    store.get(layout.generation_key(DIGEST, kept.digest))
    buffer = memoryview(bytearray(RANGE_BYTES))
    store.read_into(key, 0, buffer)
    bucket.asked.clear()
    with (node / "packs" / f"{kept.pack.sha256}.tar.zst").open("r+b") as file:
        file.seek(RANGE_BYTES + 5)
        file.write(b"evil")
    restored(store, tmp_path, tree)
    assert bucket.took("packs") == 1


@pytest.mark.parametrize("what", ["the folder", "packs"])
def test_a_folder_that_others_can_write_to_is_refused_and_named(node, what):
    NodeFolder(node)
    path = node if what == "the folder" else node / what
    path.chmod(0o777)
    with pytest.raises(LocalError, match="can be written by others") as caught:
        NodeFolder(node)
    assert str(path) in caught.value.message
    assert "--node-store" in caught.value.hint


@pytest.mark.parametrize("how", ["a link", "a file"])
def test_a_link_or_a_file_in_the_place_of_a_folder_is_refused(node, tmp_path, how):
    NodeFolder(node).close()
    (node / "packs").rmdir()
    if how == "a link":
        (tmp_path / "elsewhere").mkdir()
        (node / "packs").symlink_to(tmp_path / "elsewhere")
    else:
        (node / "packs").write_bytes(b"")
    with pytest.raises(LocalError, match="cannot use the node store"):
        NodeFolder(node)


# --- room -----------------------------------------------------------------------------------------------------------------------


def generation(bucket, tmp_path, number, size_bytes=RANGE_BYTES):
    root = make_tree(tmp_path / f"generation{number}", {f"inductor/{number}.so": os.urandom(size_bytes)})
    return publish(bucket, root).manifest


def use(near, bucket, tmp_path, node, made, **options):
    """A start that gets this generation, and waits until it is kept."""
    bucket.put(layout.latest_key(DIGEST), json.dumps({"generation": made.digest}).encode())
    live = make_tree(tmp_path / f"live{time.monotonic_ns()}", {})
    start(near(**options), live)
    eventually(lambda: pointer_of(node) == made.digest)


def test_the_longest_unused_pack_goes_when_there_is_no_room(near, bucket, node, tmp_path):
    made = [generation(bucket, tmp_path, number) for number in range(3)]
    most = 2 * RANGE_BYTES + 100_000
    for number in (0, 1, 0, 2):
        use(near, bucket, tmp_path, node, made[number], max_bytes=most)
        time.sleep(0.01)  # a file system's clock ticks every few milliseconds
    packs = {path.name for path in (node / "packs").iterdir()}
    assert packs == {f"{made[number].pack.sha256}.tar.zst" for number in (0, 2)}
    assert sum(file.size_bytes for file in NodeFolder(node).files()) <= most


@pytest.mark.usefixtures("made")
def test_a_pack_that_is_larger_than_all_that_may_be_kept_is_not_kept_and_that_is_said_once(near, node, tree, tmp_path, said):
    restored(near(max_bytes=RANGE_BYTES), tmp_path, tree)
    [line] = said
    assert f"{node} has no room for a pack of" in line
    assert "--node-store-size" in line
    assert not list((node / "packs").iterdir())
    assert not list((node / "tmp").glob("*.part"))


@pytest.mark.usefixtures("made")
def test_a_disk_that_is_nearly_full_is_left_alone_and_that_is_said_once(near, node, tree, tmp_path, said):
    restored(near(spare=1.0), tmp_path, tree)
    [line] = said
    assert "the 100% of its disk that stay free" in line
    assert not list((node / "packs").iterdir())


@pytest.mark.usefixtures("made")
def test_a_disk_that_fills_up_costs_the_restore_nothing(near, node, tree, tmp_path, monkeypatch):
    real = os.pwrite

    def full(descriptor, data, start):
        if start:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, start)

    monkeypatch.setattr(os, "pwrite", full)
    restored(near(), tmp_path, tree)
    eventually(lambda: not list((node / "tmp").glob("*.part")))
    assert not list((node / "packs").iterdir())


def test_a_restore_that_is_called_off_leaves_nothing_half(near, node, made, monkeypatch):
    monkeypatch.setattr(node_pack, "_IDLE_S", 0.05)
    store = near()
    store.get(layout.generation_key(DIGEST, made.digest))
    store.read_into(layout.pack_key(DIGEST, made.pack.sha256), 0, memoryview(bytearray(RANGE_BYTES)))
    eventually(lambda: not list((node / "tmp").glob("*.part")))
    assert not list((node / "packs").iterdir())


def test_a_pack_from_the_store_that_is_not_what_its_name_says_is_not_kept(near, node, bucket, made):
    key = layout.pack_key(DIGEST, made.pack.sha256)
    bucket.put(key, os.urandom(made.pack.size_bytes))
    store = near()
    store.get(layout.generation_key(DIGEST, made.digest))
    for begin in range(0, made.pack.size_bytes, RANGE_BYTES):
        store.read_into(key, begin, memoryview(bytearray(min(RANGE_BYTES, made.pack.size_bytes - begin))))
    eventually(lambda: not list((node / "tmp").glob("*.part")))
    assert not list((node / "packs").iterdir())


def test_eviction_beside_a_reader_costs_it_nothing(kept, near, node, tree, tmp_path):
    store = near()
    store.get(layout.generation_key(DIGEST, kept.digest))
    store.read_into(layout.pack_key(DIGEST, kept.pack.sha256), 0, memoryview(bytearray(RANGE_BYTES)))
    folder = NodeFolder(node)
    folder.evict(folder.excess(0))
    assert names(node) == set()
    restored(store, tmp_path, tree)


def test_what_a_killed_wrapper_was_writing_is_removed_by_the_next(near, node, made, tree, tmp_path):
    NodeFolder(node)
    (node / "tmp" / f"{made.pack.sha256}.tar.zst.part").write_bytes(b"half")
    restored(near(), tmp_path, tree)
    eventually(lambda: pointer_of(node))
    assert not list((node / "tmp").glob("*.part"))


def start_in_a_process(node, bucket, live, told):
    from glowplug.store.local import LocalStore

    store = NodeStore(LocalStore(bucket, url="file://b"), NodeFolder(node, spare=0), TRUST, patience_s=5, say=print)
    start(store, make_tree(live, {}))
    eventually(lambda: pointer_of(node))
    told.put(snapshot(live))


def test_wrappers_that_start_at_once_on_a_node_all_get_it_and_one_keeps_it(local_store, node, tree, tmp_path):
    made = publish(local_store, tree).manifest
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    children = [
        context.Process(target=start_in_a_process, args=(node, tmp_path / "store", tmp_path / f"live{number}", told))
        for number in range(3)
    ]
    for child in children:
        child.start()
    assert [told.get(timeout=60) for _ in children] == [snapshot(tree)] * 3
    for child in children:
        child.join(30)
    assert {child.exitcode for child in children} == {0}
    assert names(node) == {f"packs/{made.pack.sha256}.tar.zst", f"generations/{made.digest}.json", f"latest/{DIGEST}"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in node.rglob("*"))
