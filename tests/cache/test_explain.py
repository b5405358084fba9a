"""Why a start missed: envelopes, compared."""

import pytest
from cache_samples import DIGEST, ENVELOPE, make_tree, publish

from glowplug.cache.envelope import Difference, Envelope, compare
from glowplug.cache.explain import neighbours
from glowplug.cache.repository import Repository

BASE = {
    "engine": {"name": "vllm", "version": "0.32.0"},
    "arguments": {"max-model-len": 256, "enforce-eager": False},
    "packages": {"torch": "2.13.0", "triton": None},
    "environment": {},
}


def changed(**groups):
    return Envelope({name: {**content, **groups.get(name, {})} for name, content in BASE.items()})


def test_equal_envelopes_have_equal_digests_whatever_the_order():
    backwards = Envelope({name: dict(reversed(content.items())) for name, content in reversed(BASE.items())})
    assert backwards.digest == Envelope(BASE).digest
    assert compare(backwards, Envelope(BASE)) == []


@pytest.mark.parametrize(
    ("groups", "difference"),
    [
        ({"packages": {"torch": "2.12.0"}}, Difference("packages.torch", '"2.12.0"', '"2.13.0"')),
        ({"arguments": {"max-model-len": "256"}}, Difference("arguments.max-model-len", '"256"', "256")),
        ({"arguments": {"enforce-eager": 0}}, Difference("arguments.enforce-eager", "0", "false")),
        ({"packages": {"numpy": "2.0"}}, Difference("packages.numpy", '"2.0"', None)),
        ({"packages": {"triton": "3.5"}}, Difference("packages.triton", '"3.5"', "null")),
    ],
    ids=str,
)
def test_every_difference_is_named_with_both_values(groups, difference):
    assert compare(changed(**groups), Envelope(BASE)) == [difference]
    assert changed(**groups).digest != Envelope(BASE).digest


def test_a_component_that_one_side_lacks_is_named():
    assert compare(Envelope(BASE), Envelope(BASE | {"cpu": {"flags": ["avx512"]}})) == [Difference("cpu.flags", None, '["avx512"]')]
    assert compare(changed(environment={"A": "1"}), Envelope(BASE)) == [Difference("environment.A", '"1"', None)]


@pytest.fixture
def repository(store, tmp_path):
    tree = make_tree(tmp_path / "tree", {"vllm/a": b"x"})
    for envelope in (changed(packages={"torch": "2.12.0"}), changed(packages={"torch": "2.12.0"}, engine={"version": "0.31.0"})):
        publish(store, tree, envelope=envelope)
    publish(store, tree, envelope=Envelope({"engine": {"name": "sglang"}}))
    return Repository(store)


def test_the_nearest_envelopes_come_first(repository):
    found = neighbours(repository, Envelope(BASE))
    assert [len(neighbour.differences) for neighbour in found] == [1, 2, 7]
    assert found[0].differences[0].path == "packages.torch"
    assert [len(neighbour.differences) for neighbour in neighbours(repository, Envelope(BASE), limit=1)] == [1]


def test_an_equal_envelope_has_no_differences(repository):
    ours = changed(packages={"torch": "2.12.0"})
    assert neighbours(repository, ours)[0].digest == ours.digest
    assert neighbours(repository, ours)[0].differences == ()


@pytest.mark.parametrize("document", [b"", b"{}", b"[" * 100_000, ENVELOPE.document], ids=["empty", "other", "deep", "moved"])
def test_an_envelope_that_cannot_be_read_is_passed_over(repository, document):
    repository.store.put(f"v1/{'0' * 64}/envelope.json", document)
    assert "0" * 64 not in {neighbour.digest for neighbour in neighbours(repository, Envelope(BASE), limit=9)}


def test_an_envelope_without_its_document_is_passed_over(repository):
    repository.store.put(f"v1/{DIGEST}/latest", b"{}")
    assert len(neighbours(repository, Envelope(BASE), limit=9)) == 3


def test_a_group_that_is_empty_on_one_side_is_no_difference_of_its_own():
    ours, theirs = Envelope({"environment": {"VLLM_A": "1"}}), Envelope({"environment": {}})
    assert [difference.path for difference in compare(ours, theirs)] == ["environment.VLLM_A"]
    assert [difference.path for difference in compare(Envelope({"cpu": 1}), Envelope({"cpu": 1, "environment": {}}))] == [
        "environment"
    ]
