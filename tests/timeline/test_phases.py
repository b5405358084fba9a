"""Spans become phases that never overlap and never cover what nobody claimed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.timeline.phases import Phase, lay_out

SPANS = st.lists(st.tuples(st.floats(-10, 100), st.floats(-10, 100)), max_size=8)


def test_the_earlier_layer_has_the_moment_that_two_claim():
    phases = lay_out([("weights", [(2.0, 4.0)]), ("imports", [(0.0, 6.0)])], 0.0, 10.0)
    assert phases == [Phase("imports", 0.0, 2.0), Phase("weights", 2.0, 2.0), Phase("imports", 4.0, 2.0)]


def test_ranks_that_overlap_give_one_phase():
    assert lay_out([("compile", [(1.0, 3.0), (2.0, 5.0), (4.0, 4.5)])], 0.0, 10.0) == [Phase("compile", 1.0, 4.0)]


def test_a_gap_is_not_filled():
    assert lay_out([("compile", [(1.0, 2.0), (3.0, 4.0)])], 0.0, 10.0) == [Phase("compile", 1.0, 1.0), Phase("compile", 3.0, 1.0)]


def test_nothing_reaches_beyond_spawn_and_ready():
    assert lay_out([("compile", [(-5.0, 50.0)])], 1.0, 9.0) == [Phase("compile", 1.0, 8.0)]


def test_jitter_between_two_lines_is_no_phase():
    phases = lay_out([("compile", [(1.0, 3.0)]), ("profiling", [(3.0, 3.004)]), ("compile", [(3.004, 5.0)])], 0.0, 10.0)
    assert phases == [Phase("compile", 1.0, 4.0)]


@given(st.lists(st.tuples(st.sampled_from("abc"), SPANS), max_size=5), st.floats(-5, 50), st.floats(-5, 60))
def test_phases_are_ordered_disjoint_and_within_what_was_claimed(layers, start_s, end_s):
    phases = lay_out(layers, start_s, end_s)
    reached = start_s
    for phase in phases:
        assert phase.seconds > 0
        assert phase.start_s >= reached - 1e-9
        reached = phase.start_s + phase.seconds
    assert reached <= max(start_s, end_s) + 1e-9
    claimed = sum(max(0.0, end - start) for _, spans in layers for start, end in spans)
    assert sum(phase.seconds for phase in phases) <= claimed + 0.005 * len(phases) + 1e-6


@given(SPANS)
def test_one_layer_covers_exactly_the_union_of_its_spans(spans):
    covered = sum(phase.seconds for phase in lay_out([("a", spans)], 0.0, 90.0))
    union, reached = 0.0, 0.0
    for start, end in sorted(spans):
        union += max(0.0, min(end, 90.0) - max(start, reached))
        reached = max(reached, min(end, 90.0))
    assert covered == pytest.approx(union, abs=0.005 * (len(spans) + 1))
