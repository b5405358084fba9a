"""Envelopes, compared component by component."""

import pytest

from glowplug.cache.envelope import Difference, Envelope, compare

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


def test_a_group_that_is_empty_on_one_side_is_no_difference_of_its_own():
    ours, theirs = Envelope({"environment": {"VLLM_A": "1"}}), Envelope({"environment": {}})
    assert [difference.path for difference in compare(ours, theirs)] == ["environment.VLLM_A"]
    assert [difference.path for difference in compare(Envelope({"cpu": 1}), Envelope({"cpu": 1, "environment": {}}))] == [
        "environment"
    ]
