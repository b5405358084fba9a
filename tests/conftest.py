"""Fixtures for all tests: the real servers and engines of the test bed."""

from __future__ import annotations

pytest_plugins = ["testbed.fixtures_vllm", "testbed.fixtures"]
