"""Whole envelopes, leases, verdicts and reports: what garbage collection removes of them, and in what order."""

import dataclasses
import json
import os

import pytest
from cache_samples import ENVELOPE, TRUST, make_tree, publish, start

from glowplug.cache import gc, layout
from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.fetch import RANGE_BYTES
from glowplug.cache.gc import Limits, plan, store_now_s
from glowplug.cache.lease import Holder, State
from glowplug.cache.repository import Repository
from glowplug.cache.sweep import sweep
from glowplug.errors import Forbidden, ObjectNotFound
from glowplug.store.memory import MemoryStore

DAY_S = 86_400.0
START_S = 1_000_000_000.0  # a store's clock tells whatever it likes
NODE = "0" * 16


class Aging(MemoryStore):
    """A store with a clock of its own."""

    def __init__(self):
        super().__init__()
        self.now_s = START_S

    def _write(self, key, data):
        etag = super()._write(key, data)
        self._entries[key] = dataclasses.replace(self._entries[key], modified_s=self.now_s)
        return etag

    def pass_days(self, days):
        self.now_s += days * DAY_S


@pytest.fixture
def store():
    return Aging()


@pytest.fixture
def repository(store):
    return Repository(store)


def envelope(number):
    return Envelope({**ENVELOPE.components, "number": number})


@pytest.fixture
def publication(store, tmp_path):
    """Publishes for the envelope of a number; the bytes are random enough to have about the size given."""

    def work(number, *, size_bytes=1000):
        root = make_tree(tmp_path / f"tree{number}", {f"inductor/{number}.so": os.urandom(size_bytes)})
        return publish(store, root, envelope=envelope(number)).manifest

    return work


def planned(repository, **limits):
    return list(plan(repository, TRUST, Limits(**limits), now_s=repository.store.now_s))


def remove(repository, removals, **limits):
    grace_s = limits.get("grace_s", gc.GRACE_S)
    return [removal.kind for removal in sweep(repository, removals, grace_s=grace_s, now_s=repository.store.now_s)]


def collect(repository, **limits):
    return remove(repository, planned(repository, **limits), **limits)


def left(store, number=None):
    prefix = f"v1/{envelope(number).digest}/" if number is not None else "v1/"
    return [info.key.removeprefix(prefix).partition("/")[0] for info in store.list(prefix)]


# --- by age and by bytes --------------------------------------------------------------------------------------------------------


def test_an_envelope_for_which_nothing_was_published_for_long_goes_whole_and_others_stay(repository, store, publication):
    publication(1)
    store.pass_days(20)
    publication(2)
    store.pass_days(20)
    assert planned(repository, max_age_s=50 * DAY_S) == []
    assert collect(repository, max_age_s=30 * DAY_S) == ["pointer", "generation", "pack"]
    assert repository.latest(envelope(1).digest) is None
    assert left(store, 1) == ["envelope.json", "latest"]
    assert repository.latest(envelope(2).digest) is not None
    assert publication(1)  # as if there had never been anything
    assert repository.load(envelope(1).digest, repository.latest(envelope(1).digest).generation, TRUST)


def test_what_is_left_of_an_evicted_envelope_goes_with_a_later_collection(repository, store, publication):
    publication(1)
    store.put(layout.lease_key(envelope(1).digest), dataclasses.replace(Holder(), state=State.PUBLISHED).document)
    store.pass_days(40)
    collect(repository, max_age_s=30 * DAY_S)
    assert collect(repository, max_age_s=30 * DAY_S) == []  # somebody may be about to move the pointer
    store.pass_days(2)
    assert sorted(collect(repository)) == ["envelope", "lease", "pointer"]
    assert left(store) == []


def test_a_publication_young_enough_keeps_its_envelope_whatever_its_age_limit(repository, store, publication):
    publication(1)
    store.pass_days(0.5)
    assert planned(repository, max_age_s=0.1 * DAY_S) == []
    assert planned(repository, max_bytes=0) == []


def test_envelopes_go_by_bytes_the_longest_untouched_first_until_the_rest_fits(repository, store, publication):
    for number in (3, 1, 2):
        publication(number, size_bytes=10_000)
        store.pass_days(2)
    assert planned(repository, max_bytes=100_000) == []
    removals = planned(repository, max_bytes=25_000)
    assert {removal.envelope_digest for removal in removals} == {envelope(3).digest}
    assert {removal.envelope_digest for removal in planned(repository, max_bytes=15_000)} == {
        envelope(3).digest,
        envelope(1).digest,
    }
    remove(repository, removals)
    assert sum(info.size_bytes for info in store.list("v1/") if "packs" in info.key) <= 25_000
    assert len(planned(repository, max_bytes=0)) == 6


def test_what_other_rules_remove_counts_as_gone_for_the_size(repository, store, publication):
    publication(1, size_bytes=10_000)
    store.pass_days(1)
    publication(1, size_bytes=10_000)
    store.pass_days(2)
    removals = planned(repository, keep=1, max_bytes=15_000)
    assert [removal.kind for removal in removals] == ["generation", "pack"]
    removals = planned(repository, keep=1, max_bytes=5_000)
    assert len(removals) == len({removal.key for removal in removals})
    assert {removal.kind for removal in removals} == {"generation", "pack", "pointer"}


# --- what happens between plan and removal --------------------------------------------------------------------------------------


def test_an_envelope_published_for_between_plan_and_removal_is_kept_whole(repository, store, publication):
    old = publication(1)
    store.pass_days(40)
    removals = planned(repository, max_age_s=30 * DAY_S)
    new = publication(1)
    assert remove(repository, removals) == []
    for made in (old, new):
        assert repository.load(envelope(1).digest, made.digest, TRUST)
        assert store.head(layout.pack_key(envelope(1).digest, made.pack.sha256))


def test_a_publisher_that_had_read_the_pointer_before_it_went_finds_that_it_has_moved(repository, store, publication, tmp_path):
    publication(1)
    pointer = repository.latest(envelope(1).digest)
    store.pass_days(40)
    collect(repository, max_age_s=30 * DAY_S)
    tree = make_tree(tmp_path / "late", {"inductor/late.so": b"late"})
    assert not publish(store, tree, replaces=pointer, envelope=envelope(1)).published
    assert publish(store, tree, replaces=None, envelope=envelope(1)).published


def test_readers_find_a_miss_from_the_first_removal_on(repository, store, publication):
    publication(1)
    store.pass_days(40)
    sweeping = sweep(repository, planned(repository, max_age_s=30 * DAY_S), grace_s=DAY_S, now_s=store.now_s)
    assert next(sweeping).kind == "pointer"
    assert repository.latest(envelope(1).digest) is None
    assert [removal.kind for removal in sweeping] == ["generation", "pack"]


def test_a_collection_that_was_killed_after_the_pointer_is_finished_by_another(repository, store, publication):
    publication(1)
    store.pass_days(40)
    next(sweep(repository, planned(repository, max_age_s=30 * DAY_S), grace_s=DAY_S, now_s=store.now_s))
    store.pass_days(2)
    assert collect(repository, max_age_s=30 * DAY_S) == ["generation", "pack"]
    assert left(store, 1) == ["envelope.json", "latest"]


@pytest.mark.parametrize("moment", ["before the plan", "between plan and removal"])
def test_a_leased_envelope_is_left_alone(repository, store, publication, moment):
    publication(1)
    store.pass_days(40)
    removals = planned(repository, max_age_s=30 * DAY_S)
    store.put(layout.lease_key(envelope(1).digest), Holder().document)
    if moment == "before the plan":
        removals = planned(repository, max_age_s=30 * DAY_S, max_bytes=0)
        assert removals == []
    assert remove(repository, removals) == []


@pytest.mark.parametrize("state", [State.HELD, State.FAILED, State.ABANDONED])
def test_a_lease_protects_for_as_long_as_it_is_held_and_young(repository, store, publication, state):
    publication(1)
    store.put(layout.lease_key(envelope(1).digest), dataclasses.replace(Holder(ttl_s=20), state=state).document)
    store.pass_days(1)
    assert bool(planned(repository, max_bytes=0, grace_s=0)) is True  # a day old, with 20 s to live
    store.put(layout.lease_key(envelope(1).digest), dataclasses.replace(Holder(ttl_s=20), state=state).document)
    store.now_s += 10
    assert bool(planned(repository, max_bytes=0, grace_s=0)) is (state is not State.HELD)


def test_a_lease_that_is_no_document_protects_like_any_other(repository, store, publication):
    publication(1)
    store.pass_days(1)
    store.put(layout.lease_key(envelope(1).digest), b"\xff" * 100)
    assert planned(repository, max_bytes=0, grace_s=0) == []


# --- quarantine and reports -----------------------------------------------------------------------------------------------------


def test_a_generation_in_quarantine_goes_before_its_turn_and_its_verdict_stays(repository, store, publication):
    bad = publication(1)
    store.put(layout.quarantine_key(envelope(1).digest, bad.digest), b"{}")
    store.pass_days(0.5)
    good = publication(1)
    assert planned(repository, keep=5) == []
    store.pass_days(2)
    assert {(removal.kind, removal.digest) for removal in planned(repository, keep=5)} == {
        ("generation", bad.digest),
        ("pack", bad.pack.sha256),
    }
    collect(repository, keep=5)
    assert left(store, 1) == ["envelope.json", "generations", "latest", "packs", "quarantine"]
    assert repository.load(envelope(1).digest, good.digest, TRUST)


def test_a_generation_in_quarantine_is_none_of_those_that_are_kept(repository, store, publication):
    made = []
    for _ in range(3):
        made.append(publication(1))
        store.pass_days(2)
    store.put(layout.quarantine_key(envelope(1).digest, made[1].digest), b"{}")
    gone = {removal.digest for removal in planned(repository, keep=2) if removal.kind == "generation"}
    assert gone == {made[1].digest}


def test_the_newest_generation_stays_even_in_quarantine(repository, store, publication):
    bad = publication(1)
    store.put(layout.quarantine_key(envelope(1).digest, bad.digest), b"{}")
    store.pass_days(40)
    assert planned(repository, keep=1) == []


def test_a_verdict_goes_with_its_whole_envelope(repository, store, publication):
    bad = publication(1)
    store.put(layout.quarantine_key(envelope(1).digest, bad.digest), b"{}")
    store.pass_days(40)
    assert collect(repository, max_age_s=30 * DAY_S) == ["pointer", "generation", "pack", "verdict"]


def test_reports_go_when_they_are_answered_or_pointless_or_old(repository, store, publication):
    bad, good = publication(1), publication(2)
    digests = {"bad": (1, bad.digest), "gone": (1, "1" * 64), "alone": (2, good.digest)}
    keys = {
        name: layout.report_key("team", envelope(number).digest, generation, NODE) for name, (number, generation) in digests.items()
    }
    store.put(layout.quarantine_key(envelope(1).digest, bad.digest), b"{}")
    for key in keys.values():
        store.put(key, b"\0 hostile " * 100)
    store.put("v1/reports/team/not-a-report", b"")
    assert planned(repository) == []
    store.pass_days(2)
    assert {removal.key for removal in planned(repository)} == {keys["bad"], keys["gone"]}
    store.pass_days(30)
    assert {removal.key for removal in planned(repository) if removal.kind == "report"} == set(keys.values())
    collect(repository)
    assert left(store).count("reports") == 1  # what is not ours


# --- leftovers ------------------------------------------------------------------------------------------------------------------


def test_an_envelope_that_holds_nothing_but_its_description_goes_after_the_grace_period(repository, store):
    store.put(layout.envelope_key(envelope(1).digest), envelope(1).document)
    store.pass_days(0.5)
    assert planned(repository) == []
    store.pass_days(1)
    assert collect(repository) == ["envelope"]
    assert left(store) == []


def test_a_publisher_that_begins_between_plan_and_removal_keeps_its_envelope(repository, store):
    store.put(layout.envelope_key(envelope(1).digest), envelope(1).document)
    store.pass_days(2)
    removals = planned(repository)
    store.put(layout.pack_key(envelope(1).digest, "1" * 64), b"a pack")
    assert remove(repository, removals) == []


def test_a_pointer_at_a_generation_that_is_gone_is_emptied_and_then_goes(repository, store):
    store.put(layout.latest_key(envelope(1).digest), canonical_json({"generation": "1" * 64}))
    store.pass_days(2)
    assert collect(repository) == ["pointer"]
    assert repository.latest(envelope(1).digest) is None
    store.pass_days(2)
    assert collect(repository) == ["pointer"]
    assert left(store) == []


def test_the_store_tells_its_own_time_and_a_machine_in_the_future_removes_nothing_more(repository, store, publication):
    publication(1)
    assert store_now_s(store) == START_S
    assert planned(repository, max_age_s=DAY_S) == []
    assert list(plan(repository, TRUST, Limits(max_age_s=DAY_S)))  # by this machine's clock, to show what it would do


def test_a_store_that_refuses_to_be_written_ends_the_removal_before_anything_is_gone(repository, store, publication, monkeypatch):
    publication(1)
    store.pass_days(40)
    removals = planned(repository, max_age_s=30 * DAY_S)
    before = [info.key for info in store.list("")]

    def refuse(key, *_):
        raise Forbidden(f"{key}: not allowed", object=key)

    monkeypatch.setattr(store, "put_if_match", refuse)
    with pytest.raises(Forbidden):
        remove(repository, removals)
    assert [info.key for info in store.list("")] == before


def test_a_restore_that_loses_its_pack_half_way_is_an_error_and_leaves_the_live_folder_alone(tmp_path, monkeypatch):
    """What ``run`` makes of it is a miss."""
    store = MemoryStore()
    made = publish(store, make_tree(tmp_path / "tree", {"inductor/big.so": os.urandom(RANGE_BYTES * 8)})).manifest
    reads, read_into = [], MemoryStore.read_into

    def losing(self, key, start, buffer, *, if_match=None):
        reads.append(start)
        if len(reads) == 3:
            store.delete(layout.pack_key(ENVELOPE.digest, made.pack.sha256))
        read_into(self, key, start, buffer, if_match=if_match)

    monkeypatch.setattr(MemoryStore, "read_into", losing)
    live = make_tree(tmp_path / "live", {"inductor/mine.so": b"mine"})
    with pytest.raises(ObjectNotFound):
        start(store, live)
    assert [path.name for path in live.rglob("*.so")] == ["mine.so"]


def test_an_evicted_pointer_is_no_generation_to_anybody(repository, store, publication):
    publication(1)
    key = layout.latest_key(envelope(1).digest)
    assert repository.evict(envelope(1).digest, before_s=store.now_s + 1)
    assert json.loads(store.get(key).data) == {"generation": None}
    assert not repository.evict(envelope(1).digest, before_s=store.now_s)
    [shelf] = repository.shelves()
    assert shelf.latest is None
