"""``glowplug deploy ... | glowplug doctor -`` is clean: whatever deploy can write, but for what was asked for against advice."""

from __future__ import annotations

import pytest

from glowplug.deploy.make import stream
from tests.deploy.conftest import design_of
from tests.deploy.matrix import COMBINATIONS
from tests.doctor.kube import check

AGAINST_ADVICE = {("rollout", "surge"): "GP107", ("autoscale", "cpu"): "GP401"}


@pytest.mark.parametrize("given", list(COMBINATIONS.values()), ids=list(COMBINATIONS))
def test_what_deploy_writes_has_no_finding(given):
    checked = check(stream(design_of(**given)))
    asked_for = {rule for option, rule in AGAINST_ADVICE.items() if option in given.items()}
    left = [finding.sentence for finding in checked.findings if finding.rule not in asked_for]
    assert left == []
    assert checked.objects >= 4
