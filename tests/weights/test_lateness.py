"""When a second request is sent, and what watches the first."""

from __future__ import annotations

import threading
import time

import pytest

from glowplug.weights.base import Retry
from glowplug.weights.lateness import LEAST_PEERS, LEAST_S, Pace, Peers
from glowplug.weights.meter import AttemptMeter
from glowplug.weights.settings import FetchSettings

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


def test_nothing_is_late_before_its_peers_are_known():
    assert not pace(30, lambda _: 0).is_late(8 * MIB, peers(*[0.1] * (LEAST_PEERS - 1)))


def test_a_request_that_has_stopped_is_late():
    usual = peers(*[0.5] * 20)
    assert pace(1.2, lambda t: min(t, 0.3) * 10 * MIB).is_late(8 * MIB, usual)
    assert not pace(0.9, lambda t: min(t, 0.3) * 10 * MIB).is_late(8 * MIB, usual)


def test_a_request_that_is_about_to_end_is_left_alone():
    usual = peers(*[0.5] * 20)
    assert not pace(1.2, lambda t: t / 1.25 * 8 * MIB).is_late(8 * MIB, usual)
    assert pace(1.2, lambda t: t / 10 * 8 * MIB).is_late(8 * MIB, usual)


def test_quick_servers_get_a_moment_too():
    usual = peers(*[0.001] * 20)
    assert not pace(LEAST_S - 0.05, lambda _: 0).is_late(MIB, usual)
    assert pace(LEAST_S + 0.05, lambda _: 0).is_late(MIB, usual)


def test_some_slow_peers_do_not_make_everything_usual():
    assert pace(1.2, lambda _: 0).is_late(MIB, peers(*[0.5] * 20, 60.0))
    assert not pace(1.2, lambda _: 0).is_late(MIB, peers(*[0.5] * 20, *[60.0] * 5))


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
