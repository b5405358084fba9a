"""Quarantine in the cache: what is chosen, what two nodes prove and one does not, and what a writer believes."""

from __future__ import annotations

import json
import os
import uuid

import pytest
from cache_samples import DIGEST, SMALL_TREE, STRANGER, TRUST, latest_pack, make_tree, publish, start

from glowplug.cache import layout
from glowplug.cache.deadline import Deadline, unbounded
from glowplug.cache.envelope import canonical_json
from glowplug.cache.quarantine import choose, cleanse, drop_note, noted, put_note
from glowplug.cache.quarantine import testimony as evidence
from glowplug.cache.quarantine.choosing import MAX_BAD
from glowplug.cache.quarantine.judging import judge_all, verify
from glowplug.cache.quarantine.notes import MAX_NOTES
from glowplug.cache.quarantine.testimony import report
from glowplug.cache.quarantine.traces import sources
from glowplug.cache.quarantine.verdicts import Verdict, acquit, condemn, condemned, verdict_on
from glowplug.cache.repository import Repository
from glowplug.cache.trust import Trust
from glowplug.errors import BadManifest, DeadlineExceeded, UnknownKey, Unreachable
from glowplug.store import open_store
from glowplug.store.memory import MemoryStore

NODES = [character * 16 for character in "abcdef"]


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def any_store(request):
    """Memory, a folder, and a real S3 server."""
    if request.param == "s3":
        server = request.getfixturevalue("seaweedfs")
        return open_store(f"s3://{server.bucket}/quarantine-{uuid.uuid4().hex}", env=server.env)
    return request.getfixturevalue("store" if request.param == "memory" else "local_store")


def published(store, folder, word=b"x"):
    """Another generation; its digest."""
    return publish(store, make_tree(folder / uuid.uuid4().hex, SMALL_TREE | {"inductor/ab/own.so": word})).manifest.digest


def said(generation, node=NODES[0], *, kind="died", reader="pods", **more):
    fixed = {"envelope": DIGEST, "at": "2026-01-01T00:00:00Z"}
    return evidence.Testimony(generation=generation, kind=kind, node=node, reader=reader, **fixed, **more)


def choice(store, base=None, trust=TRUST):
    repository = Repository(store)
    return choose(repository, DIGEST, repository.latest(DIGEST), trust, live_base=base, deadline=unbounded("restore"))


def judge(store, **more):
    return judge_all(Repository(store), TRUST, deadline=unbounded("judge"), **more)


class Counting(MemoryStore):
    """Counts requests."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def get(self, key, **bounds):
        self.calls.append(("get", key))
        return super().get(key, **bounds)

    def list(self, prefix):
        self.calls.append(("list", prefix))
        return super().list(prefix)


class NotTold(MemoryStore):
    """A store that does not list what is in quarantine."""

    def list(self, prefix):
        if "/quarantine/" in prefix:
            raise Unreachable("it does not answer")
        return super().list(prefix)


# --- choosing


def test_a_good_generation_is_chosen_for_one_request_more_than_its_manifest(tmp_path):
    store = Counting()
    generation = published(store, tmp_path)
    pointer = Repository(store).latest(DIGEST)
    store.calls.clear()
    chosen = choose(Repository(store), DIGEST, pointer, TRUST, live_base=tmp_path, deadline=unbounded("restore"))
    assert (chosen.manifest.digest, chosen.reason, chosen.bad, chosen.may_publish) == (generation, "", frozenset(), True)
    assert sorted(kind for kind, _ in store.calls) == ["get", "list"]


def test_what_is_in_quarantine_is_passed_over_for_the_newest_other_and_then_for_none(any_store, tmp_path):
    first = published(any_store, tmp_path, b"1")
    second = published(any_store, tmp_path, b"2")
    condemn(any_store, Verdict(envelope=DIGEST, generation=second, reason="it bites", by="hand", at=""))
    chosen = choice(any_store)
    assert (chosen.manifest.digest, chosen.bad) == (first, {second})
    assert second[:12] in chosen.reason
    assert "quarantine" in chosen.reason
    assert start(any_store, make_tree(tmp_path / "live", {})).generation == second  # only the choice keeps it away
    condemn(any_store, Verdict(envelope=DIGEST, generation=first, reason="it bites too", by="hand", at=""))
    chosen = choice(any_store)
    assert (chosen.manifest, chosen.bad, chosen.may_publish) == (None, {first, second}, True)
    assert "no other" in chosen.reason
    third = published(any_store, tmp_path, b"3")  # a writer may publish although latest names a bad one
    assert choice(any_store).manifest.digest == third


def test_another_that_is_damaged_or_of_a_stranger_is_passed_over_too(store, tmp_path):
    oldest = published(store, tmp_path, b"1")
    damaged = published(store, tmp_path, b"2")
    publish(store, make_tree(tmp_path / "of-a-stranger", SMALL_TREE), signer=STRANGER)
    bad = published(store, tmp_path, b"4")
    key = layout.generation_key(DIGEST, damaged)
    store.put(key, store.get(key).data[:-9])
    condemn(store, Verdict(envelope=DIGEST, generation=bad, reason="", by="hand", at=""))
    assert choice(store).manifest.digest == oldest


def test_after_too_many_bad_ones_no_more_is_published_until_somebody_lifts_it(store, tmp_path):
    bad = [published(store, tmp_path, str(number).encode()) for number in range(MAX_BAD)]
    for generation in bad:
        assert choice(store).may_publish
        condemn(store, Verdict(envelope=DIGEST, generation=generation, reason="", by="reports", at=""))
    chosen = choice(store)
    assert not chosen.may_publish
    assert "--lift" in chosen.reason
    for generation in bad:
        acquit(store, DIGEST, generation)
    assert (choice(store).manifest.digest, choice(store).may_publish) == (bad[-1], True)


def test_an_error_of_a_good_generation_is_raised_and_of_a_bad_one_does_not_matter(store, tmp_path):
    published(store, tmp_path, b"1")
    generation = published(store, tmp_path, b"2")
    with pytest.raises(UnknownKey):
        choice(store, trust=Trust((STRANGER.public,)))
    key = layout.generation_key(DIGEST, generation)
    store.put(key, b"rubbish")
    with pytest.raises(BadManifest):
        choice(store)
    condemn(store, Verdict(envelope=DIGEST, generation=generation, reason="", by="verification", at=""))
    assert choice(store).manifest is not None


def test_where_the_store_does_not_tell_what_is_bad_the_newest_is_used_and_that_is_said(tmp_path):
    source, store = MemoryStore(), NotTold()
    generation = published(source, tmp_path)
    for info in source.list(""):
        store.put(info.key, source.get(info.key).data)
    chosen = choice(store)
    assert chosen.manifest.digest == generation
    assert "does not answer" in chosen.notice


def test_a_deadline_that_has_passed_ends_the_choice(store, tmp_path):
    published(store, tmp_path)
    repository = Repository(store)
    with pytest.raises(DeadlineExceeded):
        choose(repository, DIGEST, repository.latest(DIGEST), TRUST, live_base=None, deadline=Deadline(0, step="restore"))


# --- this node's notes, and its live folder


def test_a_note_counts_on_its_node_alone_and_at_once(any_store, tmp_path):
    generation = published(any_store, tmp_path)
    put_note(tmp_path / "here", generation, b"{}")
    assert choice(any_store, tmp_path / "here").manifest is None
    assert "on this node" in choice(any_store, tmp_path / "here").reason
    assert choice(any_store, tmp_path / "there").manifest.digest == generation
    assert drop_note(tmp_path / "here", generation)
    assert choice(any_store, tmp_path / "here").manifest.digest == generation
    assert not drop_note(tmp_path / "here", generation)


def test_notes_are_private_and_bounded(tmp_path):
    for number in range(MAX_NOTES + 3):
        put_note(tmp_path, f"{number:064x}", b"{}")
        os.utime(tmp_path / ".glowplug-bad" / f"{number:064x}.json", (number, number))
    assert len(noted(tmp_path)) == MAX_NOTES
    assert f"{MAX_NOTES + 2:064x}" in noted(tmp_path)
    assert f"{0:064x}" not in noted(tmp_path)
    folder = tmp_path / ".glowplug-bad"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)  # whoever can write there could withhold any cache
    assert noted(tmp_path) == frozenset()


def test_a_live_folder_that_ever_held_a_bad_generation_is_emptied_and_no_other(any_store, tmp_path):
    live = make_tree(tmp_path / "live", {"inductor/ab/of-this-node.so": b"own"})
    (live / ".glowplug").mkdir()
    (live / ".glowplug" / "lock").touch()
    bad = published(any_store, tmp_path, b"bad")
    start(any_store, live)
    good = published(any_store, tmp_path, b"good")
    start(any_store, live)
    assert list(sources(live)) == [bad, good]
    assert not cleanse(live, {"0" * 64})
    assert (live / "inductor" / "ab" / "of-this-node.so").exists()
    assert cleanse(live, {bad})
    assert [path.name for path in live.iterdir()] == [".glowplug"]
    assert [path.name for path in (live / ".glowplug").iterdir()] == ["lock"]
    assert sources(live) == {}
    assert start(any_store, live).fetched


# --- judging


def test_one_node_is_not_believed_however_often_it_says_it_and_two_are(any_store, tmp_path):
    generation = published(any_store, tmp_path)
    report(any_store, said(generation, reader="a"))
    report(any_store, said(generation, reader="b"))
    report(any_store, said(generation, reader="a", kind="unusable"))
    assert judge(any_store) == []
    assert condemned(any_store, DIGEST) == frozenset()
    report(any_store, said(generation, NODES[1], reason="it could not load it", exit_code=139, signal=11))
    [verdict] = judge(any_store)
    assert (verdict.generation, verdict.by, condemned(any_store, DIGEST)) == (generation, "reports", {generation})
    found = verdict_on(any_store, DIGEST, generation)
    assert "2 nodes" in found.reason
    assert {entry["node"] for entry in found.evidence} == {NODES[0], NODES[1]}
    assert choice(any_store).manifest is None
    assert judge(any_store) == []  # said once


def test_lifting_forgets_the_reports_too(any_store, tmp_path):
    generation = published(any_store, tmp_path)
    for node in NODES[:2]:
        report(any_store, said(generation, node))
    assert judge(any_store)
    acquit(any_store, DIGEST, generation)
    assert judge(any_store) == []
    assert choice(any_store).manifest.digest == generation


def test_reports_of_a_generation_that_is_not_there_and_of_other_envelopes_are_left_alone(store, tmp_path):
    generation = published(store, tmp_path)
    for node in NODES[:2]:
        report(store, said("0" * 64, node))
        report(store, said(generation, node))
    assert judge(store, envelope="1" * 64) == []
    assert [verdict.generation for verdict in judge(store)] == [generation]
    assert condemned(store, DIGEST) == {generation}


def test_a_lying_report_of_a_wrong_digest_is_looked_into_once_and_not_believed(any_store, tmp_path):
    generation = published(any_store, tmp_path)
    for node in NODES[:3]:
        report(any_store, said(generation, node, kind="integrity"))
    assert judge(any_store) == []
    assert condemned(any_store, DIGEST) == frozenset()
    assert list(any_store.list(layout.REPORTS)) == []  # nobody reads the pack for it again


def test_a_lying_report_costs_a_writer_nothing_that_has_just_verified_the_generation(tmp_path):
    store = Counting()
    generation = published(store, tmp_path)
    report(store, said(generation, kind="integrity"))
    store.calls.clear()
    assert judge(store, sound={generation}) == []
    assert layout.generation_key(DIGEST, generation) not in {key for _, key in store.calls}
    assert list(store.list(layout.REPORTS)) == []


def test_a_true_report_of_a_wrong_digest_is_enough_from_one(any_store, tmp_path):
    generation = published(any_store, tmp_path)
    key = latest_pack(any_store)
    pack = bytearray(any_store.get(key).data)
    pack[len(pack) // 2] ^= 0x80
    any_store.put(key, bytes(pack))
    report(any_store, said(generation, kind="integrity"))
    [verdict] = judge(any_store)
    assert (verdict.generation, verdict.by) == (generation, "verification")


def test_a_writer_condemns_what_is_altered_but_not_what_a_key_signed_that_it_does_not_know(store, tmp_path):
    repository = Repository(store)
    generation = published(store, tmp_path)
    assert verify(repository, DIGEST, generation, TRUST, deadline=unbounded("verify")) is None
    assert verify(repository, DIGEST, generation, Trust((STRANGER.public,)), deadline=unbounded("verify")) is None
    assert verify(repository, DIGEST, "0" * 64, TRUST, deadline=unbounded("verify")) is None  # not there yet
    key = layout.generation_key(DIGEST, generation)
    signed = json.loads(store.get(key).data)
    store.put(key, json.dumps(signed | {"signatures": []}).encode())
    assert verify(repository, DIGEST, generation, TRUST, deadline=unbounded("verify")).by == "verification"


def test_one_reader_that_floods_its_prefix_does_not_hide_what_others_report(store, tmp_path):
    generation = published(store, tmp_path)
    for number in range(200):
        store.put(layout.report_key("aaa", DIGEST, generation, f"{number:016x}"), b"rubbish")
    for node in NODES[:2]:
        report(store, said(generation, node, reader="zzz"))
    assert [verdict.generation for verdict in judge(store)] == [generation]


# --- not again


def test_the_same_generation_and_the_same_files_under_another_date_are_not_published_again(store, tmp_path):
    tree = make_tree(tmp_path / "tree", SMALL_TREE)
    first = publish(store, tree).manifest
    for node in NODES[:2]:
        report(store, said(first.digest, node))
    judge(store)
    with pytest.raises(BadManifest, match="these very files are in quarantine"):
        publish(store, tree)
    assert Repository(store).latest(DIGEST).generation == first.digest
    make_tree(tmp_path / "tree", {"inductor/ab/cabc.so": b"compiled anew"})
    publish(store, tree)
    assert choice(store).manifest.digest != first.digest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b'{"reason": 7}',
        canonical_json({"reason": "a\x1b[31m\nb", "evidence": [1, {"reason": []}]}),
    ],
    ids=range(6),
)
def test_a_verdict_is_one_whatever_it_says(store, tmp_path, content):
    generation = published(store, tmp_path)
    store.put(layout.quarantine_key(DIGEST, generation), content)
    assert choice(store).manifest is None
    found = verdict_on(store, DIGEST, generation)
    assert found.reason.isprintable()
    json.dumps([dict(entry) for entry in found.evidence])
