"""Fixtures for all tests: the real servers and engines of the test bed."""

from __future__ import annotations

import signal

from hypothesis import settings

pytest_plugins = ["testbed.fixtures_vllm", "testbed.fixtures"]


def pytest_configure() -> None:
    """No test fails for being slow, nor for having been started in the background of a shell, which ignores Ctrl-C there."""
    settings.register_profile("glowplug", deadline=None)
    settings.load_profile("glowplug")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
