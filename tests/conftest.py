"""Fixtures for all tests: the real servers and engines of the test bed; and what lets tests run side by side."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

pytest_plugins = ["testbed.fixtures_vllm", "testbed.fixtures"]


def pytest_configure(config: pytest.Config) -> None:
    """No test fails for being slow, nor for having been started in the background of a shell, which ignores Ctrl-C there."""
    settings.register_profile("glowplug", deadline=None)
    settings.load_profile("glowplug")
    _keep_bytecode_of_children(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_bytecode_of_children(config: pytest.Config) -> None:
    """The tests start hundreds of Pythons. To compile our modules anew in each takes half of its time; the checkout stays clean."""
    if "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="glowplug-bytecode-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, a file's tests stay together, and so do all that start a real vLLM: one engine at a time, the first of all."""
    items.sort(key=lambda item: item.get_closest_marker("vllm") is None)
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("vllm" if item.get_closest_marker("vllm") else item.path.name))
