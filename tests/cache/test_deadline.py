"""A deadline decides once: either the result becomes visible, or it never does."""

import threading
import time

import pytest

from glowplug.cache.deadline import Deadline, unbounded
from glowplug.errors import DeadlineExceeded


def test_time_that_is_up_is_an_error_that_names_the_option():
    deadline = Deadline(0.01, step="publish")
    deadline.check()
    time.sleep(0.02)
    assert deadline.remaining_s == 0
    with pytest.raises(DeadlineExceeded, match=r"publish took longer than 0\.01 s") as caught:
        deadline.check()
    assert caught.value.hint == "raise --publish-deadline"


def test_one_without_a_limit_never_passes():
    deadline = unbounded("verify")
    assert deadline.remaining_s is None
    deadline.check()
    with deadline.commit():
        pass


def test_the_first_reason_for_calling_off_stays():
    deadline = unbounded("publish")
    deadline.cancel("the engine has ended")
    deadline.cancel("interrupted")
    with pytest.raises(DeadlineExceeded, match="the engine has ended"):
        deadline.check()


def test_nothing_is_committed_after_calling_off():
    deadline = unbounded("restore")
    deadline.cancel("enough")
    with pytest.raises(DeadlineExceeded), deadline.commit():
        raise AssertionError("must not begin")


def test_nothing_is_committed_late():
    deadline = Deadline(0, step="restore")
    with pytest.raises(DeadlineExceeded), deadline.commit():
        raise AssertionError("must not begin")


def test_calling_off_waits_for_a_commit_under_way():
    deadline, inside, visible = unbounded("restore"), threading.Event(), []

    def work():
        with deadline.commit():
            inside.set()
            time.sleep(0.2)
            visible.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(5)
    deadline.cancel("the engine starts")
    assert visible == [True]
    thread.join()


def test_calling_off_a_commit_that_hangs_gives_up(monkeypatch):
    monkeypatch.setattr("glowplug.cache.deadline._COMMIT_S", 0.1)
    deadline, inside, end = unbounded("publish"), threading.Event(), threading.Event()

    def work():
        with deadline.commit():
            inside.set()
            end.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(5)
    begun = time.monotonic()
    deadline.cancel("interrupted")
    assert time.monotonic() - begun < 5
    end.set()
    thread.join()


def test_whoever_called_off_never_sees_the_result_change_afterwards():
    for _ in range(300):
        deadline, visible = unbounded("restore"), []

        def work(deadline=deadline, visible=visible):
            try:
                with deadline.commit():
                    visible.append("half")
                    visible.append("whole")
            except DeadlineExceeded:
                pass

        thread = threading.Thread(target=work)
        thread.start()
        deadline.cancel("now")
        seen = list(visible)
        thread.join()
        assert seen == visible
        assert seen in ([], ["half", "whole"])
