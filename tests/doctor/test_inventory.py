"""The inventory is whole: every row of the guides has a rule, another part that looks after it, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glowplug.doctor.registry import all_rules

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [
    *(f"A{number:02}" for first, last in ((1, 18), (20, 31), (40, 48), (50, 55), (60, 68)) for number in range(first, last + 1)),
    *(f"B{number:02}" for number in range(1, 39)),
    *(f"X{number:02}" for number in range(1, 20)),
]
PARTS = ("plan: ", "run: ", "deploy: ", "not yet", "not checked: ")
REASONS = (
    "nothing in a manifest",
    "are in no manifest",
    "whether ",
    "what ",
    "the versions that run",
    "the guides",
    "the agent: not yet",
    "security groups",
)
DISPUTED = {"A10": "X02", "A11": "X02", "A15": "X05", "A44": "X14", "A46": "X13", "B11": "X17"}


def table():
    rows = re.findall(r"^\| ([ABX]\d\d) \| (.+?) \| (.*?) \| (.*?) \|$", (DOCS / "inventory.md").read_text(), re.MULTILINE)
    return {row: (item, set(re.findall(r"GP\d{3}", rules)), elsewhere) for row, item, rules, elsewhere in rows}


def test_every_row_is_there_once_and_in_order():
    written = re.findall(r"^\| ([ABX]\d\d) \|", (DOCS / "inventory.md").read_text(), re.MULTILINE)
    assert written == ROWS
    assert set(table()) == set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_somebody_looks_after_a_row(row):
    item, rules, elsewhere = table()[row]
    assert item
    assert rules or elsewhere
    assert rules <= set(all_rules())
    for part in filter(None, elsewhere.split("; ")):
        assert part.startswith(PARTS + REASONS), part


@pytest.mark.parametrize("row", ROWS)
def test_the_rules_of_a_row_are_those_that_cite_it(row):
    assert table()[row][1] == {rule.id for rule in all_rules().values() if row in rule.sources}


@pytest.mark.parametrize(("row", "correction"), list(DISPUTED.items()))
def test_a_disputed_row_is_cited_together_with_its_correction(row, correction):
    assert any({row, correction} <= set(rule.sources) for rule in all_rules().values())


def test_what_is_said_to_be_missing_is_missing():
    """Whoever builds a part that is "not yet" here updates the table."""
    source = DOCS.parent / "src" / "glowplug"
    text = (DOCS / "inventory.md").read_text()
    for words, path in (("node checks", "doctor/node"), ("cluster checks", "doctor/cluster")):
        assert (words in text) != (source / path / "__init__.py").exists(), f"docs/inventory.md calls {words} not yet built"


def test_the_page_of_rules_is_not_stale():
    from glowplug.doctor.page import page

    assert (DOCS / "rules.md").read_text() == page(), "run: python -m glowplug.doctor.page > docs/rules.md"
