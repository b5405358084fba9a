"""Fixtures for all tests: the real servers and engines of the test bed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

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
