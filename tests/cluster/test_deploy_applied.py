"""Deployments that are applied to a real API server and stay there: a second apply, another's fields, other options."""

import json
import secrets

import pytest

from testbed.kubernetes.api import RefusedError
from tests.cluster.conftest import RESTRICTED, documents
from tests.deploy.matrix import COMBINATIONS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


@pytest.fixture
def applied(api):
    """Applies what deploy writes, all of it under a name of the test's own; returns what the server then has."""
    name = f"t-{secrets.token_hex(4)}"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {RESTRICTED: "restricted"}}})

    def apply(**given):
        written = documents(**{**given, "name": name, "namespace": name})
        return [api.apply(document, text=text).body for document, text in written]

    return apply


@pytest.mark.parametrize("given", [COMBINATIONS[name] for name in ("gpu-everything", "neuron-everything")], ids=["gpu", "neuron"])
def test_a_second_apply_changes_nothing(given, applied):
    first, second = applied(**given), applied(**given)
    assert len(first) >= 10
    assert [each["metadata"]["resourceVersion"] for each in second] == [each["metadata"]["resourceVersion"] for each in first]


def deployment(objects):
    found = next(each for each in objects if each["kind"] == "Deployment")
    return {key: found[key] for key in ("apiVersion", "kind")} | {
        "metadata": {key: found["metadata"][key] for key in ("name", "namespace")},
        "spec": {"replicas": found["spec"]["replicas"]},
    }


def test_an_apply_leaves_the_autoscalers_replicas_alone(api, applied):
    made = deployment(applied(**COMBINATIONS["gpu-keda"]))
    scale = {**made, "apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
    api.request("PUT", f"{api.path(made)}/scale", json.dumps(scale), content_type="application/json")
    assert deployment(applied(**COMBINATIONS["gpu-keda"]))["spec"] == {"replicas": 3}


def test_replicas_are_handed_over_to_an_autoscaler_as_the_documentation_says(api, applied):
    made = deployment(applied(**{**COMBINATIONS["gpu-plain"], "replicas": 3}))
    api.apply(made, manager="autoscaler")
    assert deployment(applied(**COMBINATIONS["gpu-keda"]))["spec"] == {"replicas": 3}


@pytest.mark.parametrize("target", ["gpu", "neuron"])
def test_other_options_are_an_apply_that_the_server_accepts(target, api, applied):
    there = applied(**COMBINATIONS[f"{target}-plain"])
    about = {key: there[0]["metadata"][key] for key in ("name", "namespace")}
    known = {each["kind"] for each in there}
    refused, sent = {}, set()
    for name, given in COMBINATIONS.items():
        for document, text in documents(**{**given, **about}) if given["target"] == target else ():
            if document["kind"] in known and text not in sent:
                sent.add(text)
                try:
                    api.apply(document, text=text, dry_run=True)
                except RefusedError as error:
                    refused[name, document["kind"]] = str(error)
    assert len(sent) > len(there)
    assert refused == {}
