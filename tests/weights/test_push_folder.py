"""Pushing a checkpoint: whole or not marked complete, nothing replaced unasked, nothing sent twice. The target is a folder here."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from commands import weights
from weights_samples import write_checkpoint, write_index

from glowplug.cache.keys import PrivateKey
from glowplug.cache.trust import SEAL, KeySigner, Trust
from glowplug.errors import BadCheckpoint, IncompatibleError, LocalError, ObjectNotFound, PreconditionFailed, UsageError
from glowplug.store import open_store
from glowplug.store.memory import MemoryStore
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.seals.loading import load_seal
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.marker import COMPLETE_NAME, SEAL_NAME, parse_marker
from glowplug.weights.transfer.push import push
from glowplug.weights.transfer.push_job import Sealing
from glowplug.weights.transfer.push_targets import FolderTarget
from glowplug.weights.transfer.snapshot import find_folder, hub_cache

ALICE = KeySigner(PrivateKey(b"a" * 32))
SEALING = Sealing(lambda payload: ALICE.sign(payload, SEAL), block_bytes=4096)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_checkpoint(folder, files=2)
    return folder


@pytest.fixture
def target(tmp_path):
    return tmp_path / "store" / "qwen"


def pushed(model, target, **options):
    store = open_store(f"file://{target}", env={})
    return push(open_checkpoint(LocalSource(model)), Path(model), store, **options)


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def test_all_files_arrive_and_the_marker_tells_their_digests(model, target):
    done = pushed(model, target)
    there = files(target)
    marker = parse_marker(there.pop(COMPLETE_NAME), name="m")
    assert there == files(model)
    assert {file.name: file.sha256 for file in marker.files} == {
        name: hashlib.sha256(data).hexdigest() for name, data in there.items()
    }
    assert done.sent_bytes == done.size_bytes == sum(map(len, there.values()))
    assert [file.name for file in done.files][:2] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def test_what_is_complete_already_is_left_as_it_is(model, target):
    pushed(model, target)
    before = {path: os.stat(path).st_ino for path in target.iterdir()}
    again = pushed(model, target)
    assert again.complete
    assert again.sent_bytes == 0
    assert {path: os.stat(path).st_ino for path in target.iterdir()} == before


def test_a_file_that_is_there_already_is_not_sent_again_and_the_marker_comes_last(model, target, monkeypatch):
    upload = FolderTarget.upload

    def fail(self, key, path, sha256, progress):
        if key == "config.json":
            raise LocalError("power cut")
        upload(self, key, path, sha256, progress)

    with monkeypatch.context() as patch:
        patch.setattr(FolderTarget, "upload", fail)
        with pytest.raises(LocalError, match="power cut"):
            pushed(model, target)
    assert COMPLETE_NAME not in files(target)
    again = pushed(model, target)
    assert {file.name for file in again.files if file.state == "there"} >= {"model-00001-of-00002.safetensors"}
    assert again.sent_bytes < 2000
    assert COMPLETE_NAME in files(target)


def test_no_weight_follows_a_small_file(model, target, monkeypatch):
    order = []
    upload = FolderTarget.upload

    def note(self, key, *rest):
        upload(self, key, *rest)
        order.append(key)

    monkeypatch.setattr(FolderTarget, "upload", note)
    pushed(model, target)
    weights = [key.endswith(".safetensors") for key in order]
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00002.safetensors"])
def test_a_file_of_other_content_is_not_replaced_unless_forced(model, target, name):
    target.mkdir(parents=True)
    size = (model / name).stat().st_size
    (target / name).write_bytes(b"x" * size)
    with pytest.raises(PreconditionFailed, match="1 file of other content") as caught:
        pushed(model, target)
    assert caught.value.object == name
    assert "--force" in caught.value.hint
    assert files(target) == {name: b"x" * size}  # nothing was changed
    pushed(model, target, force=True)
    assert files(target)[name] == (model / name).read_bytes()


def test_a_strangers_shard_beside_it_is_said(model, target):
    target.mkdir(parents=True)
    (target / "model-00003-of-00003.safetensors").write_bytes(b"other")
    with pytest.raises(PreconditionFailed, match="1 weight file that the checkpoint does not have"):
        pushed(model, target)
    assert pushed(model, target, force=True).left == ("model-00003-of-00003.safetensors",)


def test_another_complete_checkpoint_loses_its_marker_before_its_first_file_changes(model, target, tmp_path, monkeypatch):
    pushed(model, target)
    write_checkpoint(tmp_path / "new", files=2, seed=9)
    with pytest.raises(PreconditionFailed):
        pushed(tmp_path / "new", target)
    assert COMPLETE_NAME in files(target)
    upload = FolderTarget.upload

    def check(self, *rest):
        assert COMPLETE_NAME not in files(target)
        upload(self, *rest)

    monkeypatch.setattr(FolderTarget, "upload", check)
    pushed(tmp_path / "new", target, force=True)
    assert COMPLETE_NAME in files(target)


def test_a_file_that_changed_after_the_marker_is_noticed(model, target):
    pushed(model, target)
    path = target / "config.json"
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=((target / COMPLETE_NAME).stat().st_mtime_ns + 10**9,) * 2)
    with pytest.raises(PreconditionFailed, match=r"config\.json"):
        pushed(model, target)


def test_a_checkpoint_that_lacks_a_shard_is_refused_before_anything_is_sent(model, target):
    (model / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadCheckpoint):
        pushed(model, target)
    assert not target.exists()


def test_an_index_that_names_a_missing_file_is_refused(model, target):
    write_index(model, {"a": "nowhere.safetensors"})
    with pytest.raises(BadCheckpoint, match="nowhere"):
        pushed(model, target)


def test_a_folder_without_safetensors_is_refused(tmp_path, target):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(IncompatibleError):
        pushed(tmp_path, target)


def test_a_name_that_no_store_can_hold_is_named_before_anything_is_sent(model, target):
    (model / "chat template.jinja").write_text("x")
    with pytest.raises(UsageError, match="chat template") as caught:
        pushed(model, target)
    assert caught.value.object == "chat template.jinja"
    assert not target.exists()


def test_a_dry_run_changes_nothing_and_tells_what_is_there(model, target):
    target.mkdir(parents=True)
    (target / "config.json").write_bytes((model / "config.json").read_bytes())
    before = files(target)
    dry = pushed(model, target, dry_run=True)
    assert {file.name for file in dry.files if file.state == "there"} == {"config.json"}
    assert files(target) == before


def test_a_file_that_changes_while_it_is_sent_ends_the_push(model, target, monkeypatch):
    upload = FolderTarget.upload

    def change(self, key, path, *rest):
        upload(self, key, path, *rest)
        if key.endswith("2.safetensors"):
            os.utime(path, ns=(1, 1))

    monkeypatch.setattr(FolderTarget, "upload", change)
    with pytest.raises(LocalError, match="changed while"):
        pushed(model, target)
    assert COMPLETE_NAME not in files(target)


def test_a_sealed_push_leaves_a_seal_that_fits(model, target):
    assert pushed(model, target, sealing=SEALING).sealed
    source = LocalSource(target)
    checkpoint = open_checkpoint(source)
    trust = Trust((ALICE.public,))
    seal = load_seal(source, checkpoint, lambda document: trust.verify(document, kind=SEAL))
    for index, file in enumerate(checkpoint.files):
        body = memoryview((target / file.name).read_bytes())[file.data_start :]
        for block in range(-(-body.nbytes // 4096)):
            assert seal.check(index, block, [body[block * 4096 : (block + 1) * 4096]])
    seal.check_small("config.json", (target / "config.json").read_bytes(), where="c")
    assert "README.md" not in seal.others  # no engine reads it


def test_a_complete_checkpoint_can_be_sealed_later_without_sending_it_again(model, target):
    pushed(model, target)
    later = pushed(model, target, sealing=SEALING)
    assert later.sealed
    assert later.sent_bytes == 0
    assert not later.marked
    assert SEAL_NAME in files(target)


def test_an_old_seal_does_not_outlive_its_content(model, target, tmp_path):
    pushed(model, target, sealing=SEALING)
    write_checkpoint(tmp_path / "new", files=2, seed=3)
    pushed(tmp_path / "new", target, force=True)
    assert SEAL_NAME not in files(target)


def test_any_store_will_do(model):
    store = MemoryStore()
    push(open_checkpoint(LocalSource(model)), model, store)
    assert store.get("config.json").data == (model / "config.json").read_bytes()
    assert json.loads(store.get(COMPLETE_NAME).data)["files"]


@pytest.mark.parametrize("below", ["", "copy", "a/b"])
def test_a_push_into_what_is_pushed_is_refused(model, below):
    before = files(model)
    with pytest.raises(UsageError, match="lies in the folder that is to be copied"):
        pushed(model, model / below)
    assert files(model) == before
    assert not (model / ".glowplug").exists()


def test_nothing_is_not_the_folder_that_one_is_in():
    with pytest.raises(UsageError, match="nothing is named"):
        find_folder("", env={})


def test_a_key_without_a_seal_is_a_usage_error(model, target, tmp_path):
    for words in (["--signing-key", "a.key"], ["--algorithm", "blake3"]):
        ended = weights("push", model, f"file://{target}", *words, env={"HOME": str(tmp_path)})
        assert ended.returncode == 2
        assert "add --seal" in ended.stderr
    assert not target.exists()


def test_a_full_disk_is_named_with_what_to_do(model, target, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", None)

    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(LocalError, match="No space left on device") as caught:
        pushed(model, target)
    assert caught.value.hint == "free space there, and push again: it goes on from there"
    assert not list((target / ".glowplug" / "spool").iterdir())


def test_a_link_that_leads_nowhere_is_a_note_unless_an_engine_reads_it(model, target):
    (model / "images").mkdir()
    (model / "images" / "logo.png").symlink_to("nowhere.png")
    assert "logo.png is a link that leads nowhere" in pushed(model, target).notes[0]
    (model / "merges.txt").symlink_to("nowhere")
    with pytest.raises(ObjectNotFound, match=r"merges\.txt is a link"):
        pushed(model, target)


def test_a_link_to_a_folder_above_brings_no_copies_of_the_model(model, target):
    (model / "loop").symlink_to(".")
    (model / "sub").mkdir()
    (model / "sub" / "up").symlink_to("..")
    done = pushed(model, target)
    assert {file.name for file in done.files} == set(files(model))


def test_a_place_with_other_models_below_it_is_not_to_be_forced(model, target):
    other = target / "other"
    other.mkdir(parents=True)
    (other / "model.safetensors").write_bytes(b"x")
    with pytest.raises(PreconditionFailed) as caught:
        pushed(model, target)
    assert f"such as file://{target}/model;" in caught.value.hint
    assert "replace what is there" not in caught.value.hint


# --- where a model lies


@pytest.fixture
def hub(tmp_path, model):
    """A Hugging Face cache with one snapshot, made of links as it is in life."""
    repository = tmp_path / "hf" / "hub" / "models--Qwen--Qwen3-0.6B"
    snapshot = repository / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c" * 40)
    for path in model.iterdir():
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return {"HF_HOME": str(tmp_path / "hf")}


def test_a_snapshot_in_the_hugging_face_cache_is_pushed_by_its_repositorys_name(hub, model, target):
    folder = find_folder("Qwen/Qwen3-0.6B", env=hub)
    pushed(folder, target)
    there = files(target)
    there.pop(COMPLETE_NAME)
    assert there == files(model)
    assert find_folder("Qwen/Qwen3-0.6B", env=hub, revision="c" * 40) == folder


def test_a_snapshot_with_a_file_that_was_not_downloaded_is_refused(hub, target):
    folder = find_folder("Qwen/Qwen3-0.6B", env=hub)
    (folder / "config.json").resolve().unlink()
    with pytest.raises(ObjectNotFound, match=r"config\.json is a link to a file that is not there"):
        pushed(folder, target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("reference", "revision", "says"),
    [
        ("Qwen/Nothing", None, "not in the Hugging Face cache"),
        ("Qwen/Qwen3-0.6B", "dev", "no revision dev"),
        ("Qwen/Qwen3-0.6B", "d" * 40, "no snapshot"),
        ("/no/such/folder", None, "not a folder"),
    ],
)
def test_a_model_that_is_not_here_is_said_with_what_to_do(hub, reference, revision, says):
    with pytest.raises(LocalError, match=says) as caught:
        find_folder(reference, env=hub, revision=revision)
    assert caught.value.hint


def test_a_folder_has_no_revisions(model):
    with pytest.raises(UsageError):
        find_folder(str(model), env={}, revision="main")


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/h", "HF_HOME": "/f"}, "/f/hub"),
        ({"HOME": "/h", "HF_HOME": "/f", "HF_HUB_CACHE": "/c"}, "/c"),
        ({"HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
    ],
)
def test_the_hub_cache_lies_where_huggingface_hub_has_it(env, folder):
    assert str(hub_cache(env)) == folder
