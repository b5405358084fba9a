"""Verification finds every kind of damage, names it, and unpacks nothing."""

import json

import pytest
from cache_samples import (
    DIGEST,
    SMALL_TREE,
    STRANGER,
    TRUST,
    compress,
    entry,
    latest_pack,
    make_tree,
    manifest,
    member,
    pack_of,
    plant,
    publish,
)

from glowplug.cache.envelope import canonical_json
from glowplug.cache.repository import Repository
from glowplug.cache.verify import check_pack, verify_generation, verify_shelf
from glowplug.errors import ObjectNotFound


def problem_of(store, generation=None):
    repository = Repository(store)
    (found,) = [
        finding
        for finding in verify_shelf(repository, next(repository.shelves()), TRUST)
        if generation in (None, finding.generation)
    ]
    return found.problem


@pytest.fixture
def good(store, tmp_path):
    publish(store, make_tree(tmp_path / "tree", SMALL_TREE | {"vllm/empty": b""}))
    return store


def test_a_good_generation_has_no_problem_and_is_read_to_the_last_byte(good):
    repository, read = Repository(good), []
    generation = repository.latest(DIGEST).generation
    finding = verify_generation(repository, DIGEST, generation, TRUST, progress=read.append)
    total = sum(map(len, SMALL_TREE.values()))
    assert (finding.problem, finding.files, finding.size_bytes, sum(read)) == ("", 5, total, total)
    assert (finding.envelope_digest, finding.generation) == (DIGEST, generation)


def alter_pack(store, change):
    key = latest_pack(store)
    store.put(key, change(store.get(key).data))


def test_a_pack_that_is_gone(good):
    good.delete(latest_pack(good))
    assert "no object" in problem_of(good)


@pytest.mark.parametrize("change", [lambda pack: pack[:-1], lambda pack: pack + b"x", lambda _: b""], ids=range(3))
def test_a_pack_of_another_length(good, change):
    alter_pack(good, change)
    assert "its manifest says" in problem_of(good)


def test_every_flipped_byte_is_found(good):
    pack = good.get(latest_pack(good)).data
    for position in range(0, len(pack), 37):
        alter_pack(good, lambda _, at=position: pack[:at] + bytes([pack[at] ^ 0x80]) + pack[at + 1 :])
        assert problem_of(good), position
    alter_pack(good, lambda _: pack)
    assert problem_of(good) == ""


@pytest.mark.parametrize(
    ("files", "pack", "problem"),
    [
        ([entry("vllm/a")], pack_of({"vllm/a": b"dbta"}), "not what its digest says"),
        ([entry("vllm/a", b""), entry("vllm/b", b"")], pack_of({"vllm/a": b"", "vllm/b": b""}), ""),
        ([entry("vllm/a", b"", sha256="0" * 64)], pack_of({"vllm/a": b""}), "not what its digest says"),
        ([entry("vllm/a")], compress(member("vllm/a"), member("vllm/b")), "holds more"),
        ([entry("vllm/a"), entry("vllm/b")], pack_of({"vllm/a": b"data"}), "no tar header"),
        ([entry("vllm/a", mode=0o4755)], pack_of({"vllm/a": b"data"}), "set-id"),
        ([entry("../x")], pack_of({"../x": b"data"}), "leads out"),
    ],
    ids=range(7),
)
def test_a_pack_or_manifest_that_is_wrong_in_itself(store, files, pack, problem):
    made = plant(store, files, pack)
    found = problem_of(store, made.digest)
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_generation_of_a_stranger(store):
    plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}), signer=STRANGER)
    assert "signed by key" in problem_of(store)


def test_an_unsigned_generation(store):
    made = plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}))
    key = f"v1/{DIGEST}/generations/{made.digest}.json"
    store.put(key, json.dumps(json.loads(store.get(key).data) | {"signatures": []}).encode())
    assert "not signed" in problem_of(store)


def test_a_generation_under_another_name(good):
    signed = good.get(f"v1/{DIGEST}/generations/{Repository(good).latest(DIGEST).generation}.json").data
    good.put(f"v1/{DIGEST}/generations/{'0' * 64}.json", signed)
    assert "another generation" in problem_of(good, "0" * 64)


def test_a_pointer_that_names_nothing_there(good):
    repository = Repository(good)
    good.put(f"v1/{DIGEST}/latest", canonical_json({"generation": "0" * 64}))
    findings = list(verify_shelf(repository, next(repository.shelves()), TRUST))
    assert [bool(finding.problem) for finding in findings] == [False, True]
    assert findings[1].generation == "0" * 64


def test_a_generation_that_is_collected_meanwhile_is_no_finding(good, tmp_path):
    repository = Repository(good)
    shelf = next(repository.shelves())
    publish(good, make_tree(tmp_path / "newer", SMALL_TREE))
    good.delete(f"v1/{DIGEST}/generations/{shelf.latest.generation}.json")
    assert [finding.problem for finding in verify_shelf(repository, shelf, TRUST)] == [""]  # the pointer's, which is new


def test_a_pointer_that_is_none(good):
    repository = Repository(good)
    good.put(f"v1/{DIGEST}/latest", b"broken")
    findings = list(verify_shelf(repository, next(repository.shelves()), TRUST))
    assert [finding.generation for finding in findings][1:] == ["latest"]
    assert "names no generation" in findings[1].problem


def test_checking_a_pack_raises_what_the_store_raises(store):
    with pytest.raises(ObjectNotFound):
        check_pack(Repository(store), manifest([entry("vllm/a")]))
