"""Pushes that meet: of two checkpoints at one prefix one is refused, and no marker ever stands over a mixture."""

from __future__ import annotations

import json
import threading

import pytest
from weights_samples import write_checkpoint

from glowplug.errors import ConditionalWritesUnsupported, LocalError, PreconditionFailed
from glowplug.store import open_store
from glowplug.store.memory import MemoryStore
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, SEAL_NAME, parse_marker
from glowplug.weights.transfer.push import push
from glowplug.weights.transfer.push_job import Sealing
from glowplug.weights.transfer.push_targets import FolderTarget

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def models(tmp_path):
    """Two checkpoints whose files have the same names and sizes, and a copy of the first."""
    for name, seed in (("one", 1), ("two", 1), ("copy", 1)):
        write_checkpoint(tmp_path / name, files=2, seed=seed)
    for shard in (tmp_path / "two").glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    return tmp_path


class Meeting(MemoryStore):
    """Holds the first listings back until all pushes have asked for one."""

    def __init__(self, pushes):
        super().__init__()
        self.barrier = threading.Barrier(pushes)
        self.met = threading.local()
        self.met.done = True  # who only looks waits for nobody

    def list(self, prefix):
        found = list(super().list(prefix))
        if not getattr(self.met, "done", False):
            self.met.done = True
            self.barrier.wait(5)
        return iter(found)


class Unconditional(MemoryStore):
    def put_if_absent(self, key, _):
        raise ConditionalWritesUnsupported("no conditions here", object=key)


def pushed(folder, store, **options):
    return push(open_checkpoint(LocalSource(folder)), folder, store, **options)


def holds(store, folder):
    return all(store.get(path.name).data == path.read_bytes() for path in folder.iterdir())


def names(store):
    return {info.key for info in store.list("")}


def at_once(store, folders):
    ends = {}

    def one(folder):
        try:
            ends[folder.name] = pushed(folder, store)
        except PreconditionFailed as error:
            ends[folder.name] = error

    threads = [threading.Thread(target=one, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def cut_after(monkeypatch, count, *, then):
    """From the ``count``-th file on, ``then`` is called with the name before each is sent."""
    upload, sent = FolderTarget.upload, []

    def counted(self, key, *rest):
        sent.append(key)
        if len(sent) > count:
            then(key)
        return upload(self, key, *rest)

    monkeypatch.setattr(FolderTarget, "upload", counted)


def fail(_):
    raise LocalError("power cut")


@pytest.mark.parametrize("_", range(5))
def test_of_two_checkpoints_pushed_at_once_one_is_there_whole_and_the_other_is_refused(models, _):
    store = Meeting(2)
    ends = at_once(store, [models / "one", models / "two"])
    refused = [name for name, end in ends.items() if isinstance(end, PreconditionFailed)]
    assert len(refused) == 1
    (won,) = set(ends) - set(refused)
    assert holds(store, models / won)
    assert COMPLETE_NAME in names(store)
    assert PUSHING_NAME not in names(store)


def test_two_pushes_of_one_checkpoint_both_end_well(models):
    store = Meeting(2)
    ends = at_once(store, [models / "one", models / "copy"])
    assert not [end for end in ends.values() if isinstance(end, PreconditionFailed)], ends
    assert holds(store, models / "one")
    assert PUSHING_NAME not in names(store)


def test_the_claim_of_a_dead_push_is_shared_by_the_same_and_refuses_another(models, monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        cut_after(patch, 1, then=fail)
        with pytest.raises(LocalError):
            pushed(models / "one", store)
    assert PUSHING_NAME in names(store)
    with pytest.raises(PreconditionFailed, match="another checkpoint is being pushed there, by process") as caught:
        pushed(models / "two", store)
    assert caught.value.object == PUSHING_NAME
    assert "--force" in caught.value.hint
    assert COMPLETE_NAME not in names(store)
    assert not pushed(models / "copy", store).complete
    assert holds(store, models / "one")
    assert PUSHING_NAME not in names(store)


def test_a_push_by_force_takes_the_claim_and_the_other_push_ends(models, monkeypatch):
    store = MemoryStore()
    thrown = []

    def take_over(_):
        if not thrown:
            thrown.append(1)
            pushed(models / "two", store, force=True)

    cut_after(monkeypatch, 1, then=take_over)
    with pytest.raises(PreconditionFailed, match="took this place over") as caught:
        pushed(models / "one", store)
    assert COMPLETE_NAME not in names(store)  # a file that was under way has landed in it
    assert PUSHING_NAME not in names(store)
    assert "has landed there" in caught.value.hint
    pushed(models / "two", store, force=True)
    assert holds(store, models / "two")


def test_what_the_push_that_was_taken_over_had_under_way_is_replaced(models, monkeypatch):
    store = MemoryStore()
    other = (models / "one" / SHARD).read_bytes()
    landed = []

    def land(_):
        if not landed:
            landed.append(store.put(SHARD, other))

    cut_after(monkeypatch, 2, then=land)  # after both shards
    done = pushed(models / "two", store, force=True)
    assert holds(store, models / "two")
    assert {COMPLETE_NAME, PUSHING_NAME} & names(store) == {COMPLETE_NAME}
    assert done.sent_bytes == done.size_bytes


def test_a_push_whose_claim_was_taken_sends_no_further_shard(models, monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr("glowplug.weights.transfer.push_job._FILES_AT_ONCE", 1)
    cut_after(monkeypatch, 0, then=lambda _: store.put(PUSHING_NAME, b'{"content": "other"}'))
    with pytest.raises(PreconditionFailed, match="another checkpoint is being pushed"):
        pushed(models / "one", store)
    assert {name for name in names(store) if name.endswith(".safetensors")} == {SHARD}


def test_a_file_that_was_under_way_when_the_claim_was_taken_does_not_land(models, tmp_path, monkeypatch):
    monkeypatch.setattr("glowplug.weights.transfer.push_targets._STEP_BYTES", 4096)
    store = open_store(f"file://{tmp_path / 'store'}", env={})
    taken = []

    def take_over(size_bytes):
        if size_bytes == 4096 and not taken:
            taken.append(store.put(PUSHING_NAME, b'{"content": "other"}'))

    monkeypatch.setattr("glowplug.weights.transfer.push_job._FILES_AT_ONCE", 1)
    with pytest.raises(PreconditionFailed, match="another checkpoint is being pushed"):
        pushed(models / "one", store, progress=take_over)
    assert taken
    assert names(store) == {PUSHING_NAME}


@pytest.mark.parametrize("sealing", [None, Sealing(lambda payload: payload)], ids=["plain", "sealed"])
def test_a_claim_that_is_taken_while_the_marker_is_written_costs_the_marker(models, monkeypatch, sealing):
    store = MemoryStore()
    put = store.put

    def put_late(key, data):
        if key == COMPLETE_NAME:
            put(PUSHING_NAME, b'{"content": "other"}')
        return put(key, data)

    monkeypatch.setattr(store, "put", put_late)
    with pytest.raises(PreconditionFailed, match="another checkpoint is being pushed"):
        pushed(models / "one", store, sealing=sealing)
    assert not names(store) & {COMPLETE_NAME, SEAL_NAME}


def test_a_refused_push_leaves_no_claim(models):
    store = MemoryStore()
    store.put("config.json", b"other")
    with pytest.raises(PreconditionFailed):
        pushed(models / "one", store)
    assert names(store) == {"config.json"}


def test_a_push_that_could_not_begin_to_write_leaves_no_claim(models, monkeypatch):
    store = MemoryStore()
    claimed = []

    def listing(prefix):
        claimed.append(PUSHING_NAME in store._entries)
        if len(claimed) == 2:
            raise LocalError("the second look failed")
        return MemoryStore.list(store, prefix)

    with monkeypatch.context() as patch:
        patch.setattr(store, "list", listing)
        with pytest.raises(LocalError):
            pushed(models / "one", store)
    assert claimed == [False, True]
    assert names(store) == set()


def test_a_claim_that_outlived_its_push_is_removed_by_the_next(models):
    store = MemoryStore()
    claims = []
    put = store.put_if_absent
    store.put_if_absent = lambda key, data: claims.append(data) or put(key, data)
    pushed(models / "one", store)
    store.put(PUSHING_NAME, claims[0])
    assert pushed(models / "one", store).complete
    assert PUSHING_NAME not in names(store)


@pytest.mark.parametrize("kind", [MemoryStore, Unconditional])
def test_no_marker_is_written_where_another_hand_has_replaced_a_file(models, monkeypatch, kind):
    store = kind()
    other = (models / "two" / SHARD).read_bytes()
    cut_after(monkeypatch, 2, then=lambda _: store.put(SHARD, other))
    with pytest.raises(PreconditionFailed, match="by another hand") as caught:
        pushed(models / "one", store)
    assert caught.value.object == SHARD
    assert COMPLETE_NAME not in names(store)


def test_where_nothing_can_be_claimed_that_is_said(models):
    store = Unconditional()
    assert "no conditional writes" in pushed(models / "one", store).notes[0]
    assert COMPLETE_NAME in names(store)


def test_a_marker_that_disagrees_with_what_lies_there_is_not_complete_already(models, tmp_path):
    store = open_store(f"file://{tmp_path / 'store'}", env={})
    pushed(models / "one", store)
    marker = store.get(COMPLETE_NAME).data
    store.put(SHARD, (models / "two" / SHARD).read_bytes())
    store.put(COMPLETE_NAME, marker)  # younger than the object, as after two pushes at once
    with pytest.raises(PreconditionFailed, match="other content"):
        pushed(models / "one", store)
    tree = json.loads(marker)
    tree["files"][-1]["sha256"] = "0" * 64
    pushed(models / "one", store, force=True)
    store.put(COMPLETE_NAME, json.dumps(tree).encode())
    again = pushed(models / "one", store)
    assert not again.complete
    assert again.marked
    assert parse_marker(store.get(COMPLETE_NAME).data, name="m").by_name[tree["files"][-1]["name"]].sha256 != "0" * 64
