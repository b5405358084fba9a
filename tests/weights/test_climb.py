"""The number of requests at once, on models of servers."""

from __future__ import annotations

import pytest

from glowplug.weights.fetch.climb import CALM_S, Climb

MB = 1_000_000


def run(climb, seconds, brings, *, at_s=0.0, received=0.0, busy=True, tick_s=0.05):
    """Feed the climb with a server that gives ``brings(level)`` bytes a second. Returns the levels seen and where it stopped."""
    levels = []
    while seconds > 0:
        received += brings(climb.level) * tick_s
        at_s += tick_s
        seconds -= tick_s
        levels.append(climb.sample(at_s, int(received), busy=busy))
    return levels, at_s, received


def test_it_climbs_to_the_top_where_each_request_brings_more():
    levels, _, _ = run(Climb(4, 32), 5, lambda level: level * 50 * MB)
    assert levels[-1] == 32
    assert levels == sorted(levels)


def test_it_stays_where_more_requests_bring_nothing():
    levels, _, _ = run(Climb(4, 32), 3.5, lambda _level: 150 * MB)
    assert levels[-1] == 8
    assert max(levels) == 12


def test_it_finds_the_knee():
    levels, _, _ = run(Climb(4, 64), 3.5, lambda level: min(level, 18) * 50 * MB)
    assert levels[-1] == 18


def test_a_level_that_is_only_being_tried_is_not_the_one_it_has_settled_on():
    climb = Climb(4, 64)
    levels, at_s, received = run(climb, 0.6, lambda level: level * 50 * MB)
    assert (levels[-1], climb.settled) == (12, 8)
    run(climb, 0.5, lambda level: level * 50 * MB, at_s=at_s, received=received)
    assert (climb.level, climb.settled) == (18, 12)
    assert Climb(4, 64).settled == 8


def test_it_leaves_a_level_that_is_worse():
    levels, _, _ = run(Climb(4, 64), 3.5, lambda level: level * 50 * MB if level <= 12 else 100 * MB)
    assert levels[-1] == 12


def test_it_tries_again_later_as_networks_change():
    climb = Climb(4, 32)
    _, at_s, received = run(climb, 3, lambda _level: 150 * MB)
    assert climb.level == 8
    run(climb, 10, lambda level: level * 50 * MB, at_s=at_s, received=received)
    assert climb.level == 32


def test_nothing_is_learned_while_too_few_requests_run():
    levels, _, _ = run(Climb(4, 32), 5, lambda level: level * 50 * MB, busy=False)
    assert set(levels) == {8}


@pytest.mark.parametrize("start", [1, 8, 100])
def test_the_bounds_hold(start):
    climb = Climb(4, 12, start=start)
    assert 4 <= climb.level <= 12
    levels, _, _ = run(climb, 20, lambda level: level * 50 * MB)
    assert all(4 <= level <= 12 for level in levels)


def test_equal_bounds_are_a_fixed_number():
    levels, _, _ = run(Climb(7, 7), 10, lambda level: level * MB)
    assert set(levels) == {7}


def test_a_server_that_asks_for_less_gets_less_at_once_and_for_a_while():
    climb = Climb(4, 32)
    _, at_s, received = run(climb, 3, lambda level: level * 50 * MB)
    before = climb.level
    assert climb.slow_down(at_s) < before
    lowered = climb.level
    levels, _, _ = run(climb, CALM_S - 0.2, lambda level: level * 50 * MB, at_s=at_s, received=received)
    assert set(levels) == {lowered}


def test_many_such_answers_at_one_moment_count_once():
    once, often = Climb(4, 32), Climb(4, 32)
    once.slow_down(1.0)
    for _ in range(20):
        often.slow_down(1.0)
    assert often.level == once.level


def test_a_server_that_keeps_asking_brings_it_down_to_one_and_calm_brings_it_back():
    climb = Climb(4, 32)
    for moment in range(20):
        climb.slow_down(float(moment))
    assert climb.level == 1
    run(climb, 30, lambda _level: 150 * MB, at_s=20.0)
    assert climb.level >= 4
