"""When a second request is sent, and what watches the first."""

from __future__ import annotations

import threading
import time

import pytest

from glowplug.weights.base import Retry
from glowplug.weights.fetch.lateness import LEAST_PEERS, LEAST_S, Pace, Peers
from glowplug.weights.fetch.meter import AttemptMeter
from glowplug.weights.fetch.settings import FetchSettings

MIB = 1024 * 1024


def peers(*durations):
    known = Peers()
    for seconds in durations:
        known.ended(seconds)
    return known


def pace(seconds, bytes_at):
    """A request that began at 0 and has received ``bytes_at(t)``."""
    running = Pace(0.0)
    for step in range(1, int(seconds / 0.05) + 1):
        running.seen(step * 0.05, int(bytes_at(step * 0.05)))
    return running


def late(running, size_bytes, known):
    return running.is_stalled(size_bytes, known), running.is_slow(size_bytes, known)


def test_nothing_is_late_before_its_peers_are_known():
    assert late(pace(30, lambda _: 0), 8 * MIB, peers(*[0.1] * (LEAST_PEERS - 1))) == (False, False)


def test_a_request_that_has_stopped_is_stalled_before_it_would_be_slow():
    usual = peers(*[0.5] * 20)

    def stopped(t):
        return min(t, 0.3) * 10 * MIB

    assert late(pace(0.9, stopped), 8 * MIB, usual) == (False, False)
    assert late(pace(1.2, stopped), 8 * MIB, usual) == (True, False)
    assert late(pace(1.6, stopped), 8 * MIB, usual) == (True, True)


def test_a_request_that_others_wait_for_is_waited_for_less_long():
    usual = peers(*[0.5] * 20)
    running = pace(0.8, lambda t: min(t, 0.1) * 10 * MIB)
    assert not running.is_stalled(8 * MIB, usual)
    assert running.is_stalled(8 * MIB, usual, urgent=True)
    assert running.is_slow(8 * MIB, usual, urgent=True)


def test_a_request_that_drips_is_stalled():
    assert late(pace(1.2, lambda t: min(t, 0.3) * 10 * MIB + t * 1000), 8 * MIB, peers(*[0.5] * 20)) == (True, False)


def test_a_request_that_is_about_to_end_is_left_alone():
    usual = peers(*[0.5] * 20)
    assert late(pace(1.7, lambda t: t / 1.75 * 8 * MIB), 8 * MIB, usual) == (False, False)
    assert late(pace(1.7, lambda t: t / 5 * 8 * MIB), 8 * MIB, usual) == (False, True)


def test_quick_servers_get_a_moment_too():
    usual = peers(*[0.001] * 20)
    assert late(pace(LEAST_S - 0.05, lambda _: 0), MIB, usual) == (False, False)
    assert late(pace(LEAST_S + 0.05, lambda _: 0), MIB, usual) == (True, True)


def test_some_slow_peers_do_not_make_everything_usual():
    assert late(pace(1.2, lambda _: 0), MIB, peers(*[0.5] * 20, 60.0))[0]
    assert not late(pace(1.2, lambda _: 0), MIB, peers(*[0.5] * 20, *[60.0] * 5))[0]


def meter(**settings):
    return AttemptMeter(FetchSettings(**settings), MIB, None, local=False)


def test_an_attempt_ended_from_outside_is_aborted_once_it_has_a_connection():
    aborted = threading.Event()
    attempt = meter()
    attempt.end("enough")
    attempt.connected(aborted.set)
    assert aborted.is_set()
    with pytest.raises(Retry, match="enough"):
        attempt.advance(10)
    assert attempt.received == 10


def test_an_attempt_is_held_to_its_speed():
    attempt = meter(low_speed_window_s=0.05, low_speed_bytes_per_s=1_000_000)
    attempt.advance(1_000_000)
    time.sleep(0.06)
    attempt.advance(0)
    time.sleep(0.06)
    with pytest.raises(Retry, match=r"it brought 0 B in 0\.\d+ s"):
        attempt.advance(0)
    assert attempt.was_slow


def test_a_disk_is_not_held_to_any_speed():
    attempt = AttemptMeter(FetchSettings(low_speed_window_s=0.01), MIB, None, local=True)
    time.sleep(0.02)
    attempt.advance(0)


def test_a_request_that_stalls_after_a_good_begin_is_given_up_within_a_window():
    attempt = meter(low_speed_window_s=0.2, low_speed_bytes_per_s=1000)
    attempt.advance(100_000)
    begun = time.monotonic()

    def go_on():
        while time.monotonic() - begun < 5:
            time.sleep(0.01)
            attempt.advance(0)

    with pytest.raises(Retry):
        go_on()
    assert time.monotonic() - begun < 1
