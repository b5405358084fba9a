"""Every rule finds what it is for, and nothing in a twin that is only a little different."""

from __future__ import annotations

import re

import pytest

from glowplug.doctor.registry import all_rules, manifest_rules
from glowplug.doctor.sources import told
from tests.doctor import cases_cluster, cases_engine, cases_pods
from tests.doctor.kube import as_yaml, check, found, llm

CASES = {**cases_engine.CASES, **cases_pods.CASES, **cases_cluster.CASES}


def each(place):
    """Every manifest of one kind, as a tuple of objects."""
    for rule, pair in sorted(CASES.items()):
        for number, given in enumerate(pair[place]):
            yield pytest.param(rule, given if isinstance(given, tuple) else (given,), id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "given"), list(each(0)))
def test_it_finds(rule, given):
    text = as_yaml(*given)
    mine = [finding for finding in check(text).findings if finding.rule == rule]
    assert mine, f"{rule} found nothing in\n{text}"
    for finding in mine:
        assert re.fullmatch(r"\w+/(default/|b/)?[\w.-]+", finding.object)
        assert 1 <= finding.line <= text.count("\n")
        assert "\n" not in finding.message
        assert not finding.message.endswith(".")
        assert len(finding.sentence) < 240


@pytest.mark.parametrize(("rule", "given"), list(each(1)))
def test_it_stays_silent(rule, given):
    assert rule not in found(given), as_yaml(*given)


def test_every_rule_has_both():
    assert set(CASES) == {rule.id for rule in manifest_rules()}
    assert all(fires and silent for fires, silent in CASES.values())
    assert len(CASES) >= 60


def test_the_well_made_workload_has_no_finding_at_all():
    assert found([llm()]) == []


@pytest.mark.parametrize("rule", list(all_rules().values()), ids=lambda rule: rule.id)
def test_every_rule_explains_itself(rule):
    assert re.fullmatch(r"GP\d{3}", rule.id)
    assert rule.severity in ("error", "warning", "info")
    assert not rule.title.endswith(".")
    assert rule.why.endswith(".")
    assert rule.fix.rstrip(")}").endswith(".") or rule.fix.endswith((".", '"', "..."))
    assert rule.sources or rule.id.startswith("GP7")
    assert all(told(source) for source in rule.sources)


def test_ids_are_given_once():
    ids = [rule.id for rule in manifest_rules()]
    assert ids == sorted(set(ids))
