"""One file of a published generation, read without restoring it."""

import pytest
from cache_samples import DIGEST, SMALL_TREE, TRUST, latest_pack, make_tree, publish

from glowplug.cache.deadline import Deadline
from glowplug.cache.explain.members import read_member
from glowplug.cache.repository import Repository
from glowplug.errors import BadPack, ObjectNotFound
from glowplug.units import MIB

LARGE = "vllm/torch_compile_cache/aa/rank_0_0/large"


@pytest.fixture
def manifest(any_store, tmp_path):
    publish(any_store, make_tree(tmp_path / "tree", SMALL_TREE | {LARGE: bytes(range(256)) * (3 * MIB // 256)}))
    repository = Repository(any_store)
    return repository.load(DIGEST, repository.latest(DIGEST).generation, TRUST)


def read(store, manifest, path):
    return read_member(store, manifest, path, deadline=Deadline(30, step="explain"))


def test_every_file_can_be_read_alone(any_store, manifest):
    for path in (*SMALL_TREE, LARGE):
        content = read(any_store, manifest, path)
        assert content == (SMALL_TREE[path] if path in SMALL_TREE else bytes(range(256)) * (3 * MIB // 256))


def test_a_file_that_is_not_there_is_named(any_store, manifest):
    with pytest.raises(ObjectNotFound, match="holds no vllm/nothing"):
        read(any_store, manifest, "vllm/nothing")


def test_a_pack_that_was_altered_is_refused(any_store, manifest):
    key = latest_pack(any_store)
    data = bytearray(any_store.get(key).data)
    data[len(data) // 2] ^= 1
    any_store.put(key, bytes(data))
    with pytest.raises(BadPack):
        read(any_store, manifest, "vllm/nothing")
