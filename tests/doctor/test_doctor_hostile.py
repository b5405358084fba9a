"""Manifests with any value in any place: the doctor answers, and does not fall over."""

from __future__ import annotations

import copy
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doctor import cases_cluster, cases_engine, cases_pods
from tests.doctor.kube import as_yaml, check, other

WHOLE = [
    manifest
    for cases in (cases_engine.CASES, cases_pods.CASES, cases_cluster.CASES)
    for pair in cases.values()
    for fires in pair[0]
    for manifest in (fires if isinstance(fires, tuple) else (fires,))
    if isinstance(manifest, dict)
]
ODD = [
    None,
    True,
    -1,
    0,
    2**70,
    0.5,
    "",
    "x",
    "$(A)",
    "\u202e\x85",
    [],
    {},
    [None],
    [[]],
    {"": None},
    [{"name": None}],
    "9" * 400,
    {"a": {"b": []}},
]


def places(value, path=()):
    """Every path in a manifest."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_in_any_place(data):
    given_ = copy.deepcopy(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([each for each in places(given_) if each]))
        holder = given_
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    checked = check([given_, other("example.com/v1", "Thing")])  # of no object at all there is nothing to check
    assert checked.objects + len(checked.passed_over) + len(checked.bad) >= 2


def test_a_thousand_manifests_take_seconds():
    text = as_yaml(*(WHOLE * (1000 // len(WHOLE) + 1))[:1000])
    began = time.process_time()
    assert check(text).objects > 900
    assert time.process_time() - began < 5
