"""Every manifest that deploy can write, shown to a real API server that has the definitions of the custom resources as well."""

import copy

import pytest

from glowplug.deploy.checks import MOST_NAME
from testbed.kubernetes.api import RefusedError
from tests.cluster.conftest import documents
from tests.deploy.matrix import COMBINATIONS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="session")
def accepted(api):
    """The warnings with which the server accepts a document in a dry run. What several combinations write is sent once."""
    known = {}

    def dry_run(document, text):
        if text not in known:
            known[text] = api.apply(document, text=text, dry_run=True).warnings
        return known[text]

    return dry_run


@pytest.mark.parametrize("given", COMBINATIONS.values(), ids=COMBINATIONS)
def test_the_server_accepts_every_object_and_has_nothing_against_any(given, accepted):
    warnings = [warning for document, text in documents(**given) for warning in accepted(document, text)]
    if given.get("run_as_user") == 0:
        assert warnings
        assert all("runAsNonRoot != true" in warning for warning in warnings)
    else:
        assert warnings == []


def test_the_server_accepts_the_longest_names(api, accepted):
    namespace = "s" * 63
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for document, text in documents(**{**COMBINATIONS["gpu-everything"], "name": "n" * MOST_NAME, "namespace": namespace}):
        assert accepted(document, text) == ()


def _engine(document):
    return document["spec"]["template"]["spec"]["containers"][0]


def _requirement(document):
    return document["spec"]["template"]["spec"]["requirements"][0]


REFUSED = {
    "a field that Kubernetes does not know": (
        "Deployment", lambda it: _engine(it).update(startUpProbe={}), "startUpProbe",
    ),
    "a volume that is mounted and not there": (
        "Deployment", lambda it: it["spec"]["template"]["spec"]["volumes"].pop(), "Not found",
    ),
    "half a device": (
        "Deployment", lambda it: _engine(it)["resources"]["limits"].update({"nvidia.com/gpu": "500m"}), "must be an integer",
    ),
    "a sidecar in a pod that restarts it otherwise": (
        "Job", lambda it: it["spec"]["template"]["spec"].update(restartPolicy="Always"), "restartPolicy",
    ),
    "a node pool's field that Karpenter does not know": (
        "NodePool", lambda it: it["spec"].update(ttlSecondsAfterEmpty=30), "ttlSecondsAfterEmpty",
    ),
    "a requirement without a value": (
        "NodePool", lambda it: _requirement(it).update(values=[]), "requirements with operator 'In' must have a value defined",
    ),
    "a label that is Karpenter's own": (
        "NodePool", lambda it: _requirement(it).update(key="karpenter.sh/nodepool"), "restricted",
    ),
    "an image's alias of no family": (
        "EC2NodeClass", lambda it: it["spec"].update(amiSelectorTerms=[{"alias": "al2024@latest"}]), "family is not supported",
    ),
    "a trigger without a type": (
        "ScaledObject", lambda it: it["spec"]["triggers"][0].pop("type"), "triggers[0].type: Required",
    ),
    "an interval that is no duration": (
        "PodMonitor", lambda it: it["spec"]["podMetricsEndpoints"][0].update(interval="often"), "interval",
    ),
    "more throughput than a volume of Auto Mode has": (
        "NodeClass", lambda it: it["spec"]["ephemeralStorage"].update(throughput=1001), "less than or equal to 1000",
    ),
    "a volume of Auto Mode that is larger than any": (
        "NodeClass", lambda it: it["spec"]["ephemeralStorage"].update(size="60000Gi"), "1 to 59000Gi",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "spoil", "reason"), REFUSED.values(), ids=REFUSED)
def test_the_server_refuses(kind, spoil, reason, api):
    written = documents(**COMBINATIONS["gpu-auto" if kind == "NodeClass" else "gpu-everything"])
    document = copy.deepcopy(next(each for each, _ in written if each["kind"] == kind))
    assert api.apply(document, dry_run=True)
    spoil(document)
    with pytest.raises(RefusedError) as caught:
        api.apply(document, dry_run=True)
    assert reason in str(caught.value)
