"""Fixtures for all tests: the real servers and engines of the test bed."""

from __future__ import annotations

import signal

pytest_plugins = ["testbed.fixtures_vllm", "testbed.fixtures"]


def pytest_configure() -> None:
    """Undo what a shell does to a command in the background: what the tests start would ignore Ctrl-C as well."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
