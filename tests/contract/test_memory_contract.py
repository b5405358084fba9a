"""The memory store keeps the contract."""

from __future__ import annotations

import pytest

from glowplug.store.memory import MemoryStore
from tests.contract.suite import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _shared(self):
        self.stores: dict[str, MemoryStore] = {}

    def make_store(self, prefix):
        return self.stores.setdefault(prefix, MemoryStore())

    # Its prefixes are separate stores by construction.
    test_neighbouring_prefixes_never_meet = None
