"""The threat model promises tests by name: each must be there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security import policies

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCUMENT)))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_every_test_that_the_threat_model_names_exists(file, name):
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_threat_model_names_its_tests():
    assert len(NAMED) > 30


def test_every_attack_names_its_test_or_admits_that_it_succeeds():
    rows = [line for line in DOCUMENT.partition("## Attacks")[2].splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 20
    for row in rows:
        shown = row.rstrip(" |").rpartition("| ")[2]
        assert "::test_" in shown or ("**" in row and shown.strip() == "-"), row


def test_the_policies_page_lists_every_policy():
    page = (policies.FOLDER / "README.md").read_text()
    assert set(re.findall(r"\| `([\w-]+\.json)` \|", page)) == {path.name for path in policies.FOLDER.glob("*.json")}
    for path in policies.FOLDER.glob("*.json"):
        placeholders = set(re.findall(r"@([A-Z_]+)@", path.read_text()))
        assert placeholders <= set(policies.VALUES), path
        assert all(f"@{each}@" in page for each in placeholders)
