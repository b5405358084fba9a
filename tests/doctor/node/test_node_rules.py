"""Every rule over a machine finds what it is for, and nothing in a twin that is only a little different."""

from __future__ import annotations

import pytest

from glowplug.doctor.checking import check_node
from glowplug.doctor.node.registry import node_rules
from glowplug.doctor.registry import manifest_rules
from tests.doctor.node.cases import CASES, GOOD, LAPTOP

RULES = {rule.id: rule for rule in node_rules()}


def each(place):
    for rule, pair in sorted(CASES.items()):
        for number, facts in enumerate(pair[place]):
            yield pytest.param(rule, facts, id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "facts"), list(each(0)))
def test_it_finds(rule, facts):
    mine = [finding for finding in check_node(facts).findings if finding.rule == rule]
    assert mine
    for finding in mine:
        assert finding.severity == RULES[rule].severity
        assert finding.object
        assert finding.file == "" or finding.file.startswith("/")
        assert finding.line == 0
        assert "\n" not in finding.message
        assert not finding.message.endswith(".")
        assert len(finding.sentence) < 240


@pytest.mark.parametrize(("rule", "facts"), list(each(1)))
def test_it_stays_silent(rule, facts):
    assert rule not in {finding.rule for finding in check_node(facts).findings}


def test_every_rule_has_both():
    assert set(CASES) == set(RULES)
    assert all(fires and silent for fires, silent in CASES.values())


def test_ids_are_given_once_and_are_of_machines():
    ids = [rule.id for rule in node_rules()]
    assert ids == sorted(set(ids))
    assert all(name.startswith("GP9") for name in ids)
    assert not any(rule.id.startswith("GP9") for rule in manifest_rules())


@pytest.mark.parametrize("facts", [GOOD, LAPTOP], ids=["a pod", "a laptop"])
def test_nothing_is_wrong_with_a_good_machine(facts):
    assert [finding.sentence for finding in check_node(facts).findings] == []


def test_errors_end_with_1_and_warnings_only_if_strict():
    def code(rule, *, strict=False):
        return check_node(CASES[rule][0][0]).exit_code(strict=strict)

    assert (code("GP900"), code("GP903"), code("GP903", strict=True), code("GP907", strict=True)) == (1, 0, 1, 0)
