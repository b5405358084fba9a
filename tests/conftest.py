"""Fixtures for all tests: the real servers and engines of the test bed; and what lets tests run side by side."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

pytest_plugins = ["testbed.fixtures_vllm", "testbed.fixtures"]


def pytest_configure() -> None:
    """No test fails for being slow, nor for having been started in the background of a shell, which ignores Ctrl-C there."""
    settings.register_profile("glowplug", deadline=None)
    settings.load_profile("glowplug")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, a file's tests stay together, and so do all that start a real vLLM: one engine at a time, the first of all."""
    items.sort(key=lambda item: item.get_closest_marker("vllm") is None)
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("vllm" if item.get_closest_marker("vllm") else item.path.name))
