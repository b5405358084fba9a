"""The local store keeps the contract."""

from __future__ import annotations

import pytest

from glowplug.store import open_store
from tests.contract.suite import StoreContract


class TestLocalStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path):
        self.root = tmp_path / "store"

    def make_store(self, prefix):
        return open_store(f"file://{self.root}/{prefix}", env={})
