"""Stores for the tests of the cache."""

from __future__ import annotations

import pytest

from glowplug.store.local import LocalStore
from glowplug.store.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def local_store(tmp_path):
    folder = tmp_path / "store"
    return LocalStore(folder, url=f"file://{folder}")


@pytest.fixture(params=["memory", "local"])
def any_store(request):
    return request.getfixturevalue("store" if request.param == "memory" else "local_store")
