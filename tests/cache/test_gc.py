"""What garbage collection removes, and above all what it does not."""

import os
import time

import pytest
from cache_samples import DIGEST, STRANGER, TRUST, compress, entry, make_tree, member, pack_of, plant, publish, start

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.cache.gc import Limits, plan
from glowplug.cache.repository import Repository
from glowplug.cache.sweep import sweep
from glowplug.errors import ObjectNotFound, UsageError

DAY_S = 86_400.0


@pytest.fixture
def repository(local_store):
    return Repository(local_store)


def generation(repository, number, *, age_days, signer=None):
    """A generation as it looks some days after its publication."""
    data = b"%d" % number
    options = {"signer": signer} if signer else {}
    made = plant(repository.store, [entry("vllm/a", data)], pack_of({"vllm/a": data}), **options)
    age(repository, f"v1/{DIGEST}/generations/{made.digest}.json", age_days)
    age(repository, layout.pack_key(DIGEST, made.pack.sha256), age_days)
    return made


def age(repository, key, days):
    path = repository.store._root / key
    when = path.stat().st_mtime - days * DAY_S
    os.utime(path, (when, when))


def planned(repository, **limits):
    return {(removal.kind, removal.digest) for removal in plan(repository, TRUST, Limits(**limits))}


def collect(repository, **limits):
    """Plan, remove what was planned, and say which kinds went."""
    return remove(repository, list(plan(repository, TRUST, Limits(**limits))), grace_s=limits.get("grace_s", DAY_S))


def remove(repository, removals, *, grace_s=DAY_S):
    return [removal.kind for removal in sweep(repository, removals, grace_s=grace_s, now_s=time.time())]


def stored(repository):
    shelves = list(repository.shelves())
    return {item.digest for shelf in shelves for item in (*shelf.generations, *shelf.packs)}


def names(*manifests):
    return {name for made in manifests for name in (made.digest, made.pack.sha256)}


def test_the_newest_stay_and_older_ones_go_with_their_packs(repository):
    made = [generation(repository, number, age_days=10 - number) for number in range(5)]
    gone = {(kind, name) for old in made[:3] for kind, name in (("generation", old.digest), ("pack", old.pack.sha256))}
    assert planned(repository) == gone
    assert planned(repository, keep=4) == {(kind, name) for kind, name in gone if name in names(made[0])}


def test_planning_removes_nothing_and_sweeping_what_was_planned(repository, tmp_path):
    made = [generation(repository, number, age_days=10 - number) for number in range(4)]
    removals = list(plan(repository, TRUST, Limits(keep=1)))
    assert stored(repository) == names(*made)
    assert sorted({round(removal.age_s / DAY_S) for removal in removals}) == [8, 9, 10]
    remove(repository, removals)
    assert stored(repository) == names(made[-1])
    assert start(repository.store, make_tree(tmp_path / "live", {})).generation == made[-1].digest
    assert planned(repository, keep=1) == set()


def test_the_generation_that_is_pointed_at_stays_even_if_it_is_the_oldest(repository, tmp_path):
    made = [generation(repository, number, age_days=10 - number) for number in range(4)]
    repository.store.put(f"v1/{DIGEST}/latest", canonical_json({"generation": made[0].digest}))
    collect(repository, keep=1)
    assert stored(repository) == names(made[0], made[3])
    start(repository.store, make_tree(tmp_path / "live", {}))


def test_nothing_younger_than_the_grace_period_goes(repository):
    for number in range(4):
        generation(repository, number, age_days=0.5)
    assert planned(repository, keep=1) == set()
    assert len(planned(repository, keep=1, grace_s=0.4 * DAY_S)) == 6


def test_a_pack_that_a_dead_publisher_left_goes_after_the_grace_period(repository):
    made = generation(repository, 1, age_days=3)
    for name, days in (("1" * 64, 0.5), ("2" * 64, 2)):
        repository.store.put(layout.pack_key(DIGEST, name), b"orphan")
        age(repository, layout.pack_key(DIGEST, name), days)
    assert planned(repository) == {("pack", "2" * 64)}
    collect(repository)
    assert stored(repository) == names(made) | {"1" * 64}


def test_a_manifest_that_cannot_be_read_keeps_every_pack_of_its_envelope(repository):
    generation(repository, 1, age_days=9)
    stranger = generation(repository, 2, age_days=8, signer=STRANGER)
    repository.store.put(layout.pack_key(DIGEST, "1" * 64), b"orphan")
    age(repository, layout.pack_key(DIGEST, "1" * 64), 9)
    assert not [kind for kind, _ in planned(repository, keep=1) if kind == "pack"]
    assert stranger.digest not in {digest for _, digest in planned(repository, keep=1)}


def test_a_pack_shared_with_a_generation_that_stays_stays(repository):
    pack = compress(member("vllm/a"), member("vllm/b"))
    old = plant(repository.store, [entry("vllm/a"), entry("vllm/b")], pack)
    age(repository, f"v1/{DIGEST}/generations/{old.digest}.json", 5)
    new = plant(repository.store, [entry("vllm/a"), entry("vllm/b", mode=0o755)], pack)
    age(repository, layout.pack_key(DIGEST, new.pack.sha256), 5)
    assert planned(repository, keep=1) == {("generation", old.digest)}


def test_a_pack_published_again_between_plan_and_sweep_stays(repository, tmp_path):
    """The same tree compiled again gives the same pack: its new generation must not lose it."""
    tree = make_tree(tmp_path / "tree", {"vllm/a": b"the same"})
    first = publish(repository.store, tree).manifest
    publish(repository.store, make_tree(tmp_path / "other", {"vllm/a": b"another"}))
    age(repository, f"v1/{DIGEST}/generations/{first.digest}.json", 3)
    age(repository, layout.pack_key(DIGEST, first.pack.sha256), 3)
    removals = list(plan(repository, TRUST, Limits(keep=1)))
    assert {removal.digest for removal in removals} == names(first)
    again = publish(repository.store, tree).manifest
    assert again.pack == first.pack
    remove(repository, removals)
    start(repository.store, make_tree(tmp_path / "live", {}))


def test_a_generation_pointed_at_between_plan_and_sweep_stays(repository):
    made = [generation(repository, number, age_days=10 - number) for number in range(3)]
    removals = [removal for removal in plan(repository, TRUST, Limits(keep=1)) if removal.kind == "generation"]
    repository.store.put(f"v1/{DIGEST}/latest", canonical_json({"generation": made[0].digest}))
    remove(repository, removals)
    assert repository.load(DIGEST, made[0].digest, TRUST)
    with pytest.raises(ObjectNotFound):
        repository.load(DIGEST, made[1].digest, TRUST)


def test_sweeping_twice_is_no_error(repository):
    for number in range(3):
        generation(repository, number, age_days=10 - number)
    removals = list(plan(repository, TRUST, Limits(keep=1)))
    remove(repository, removals)
    remove(repository, removals)


def test_a_broken_pointer_neither_stops_the_collection_nor_costs_the_newest(repository):
    made = [generation(repository, number, age_days=10 - number) for number in range(3)]
    repository.store.put(f"v1/{DIGEST}/latest", b"broken")
    collect(repository, keep=1)
    assert stored(repository) == names(made[2])


def test_keeping_none_is_refused():
    with pytest.raises(UsageError, match="--keep"):
        Limits(keep=0)


def test_foreign_objects_are_left_alone(repository):
    generation(repository, 1, age_days=5)
    for key in ("v1/README", "other/x", f"v1/{DIGEST}/packs/notes.txt", f"v1/{DIGEST}/generations/x.json"):
        repository.store.put(key, b"not ours")
        age(repository, key, 50)
    assert planned(repository, keep=1) == set()
