"""Whole outputs as files, so that a change of what is written shows as a diff. ``UPDATE_GOLDEN=1 pytest`` writes them anew."""

import os
from pathlib import Path

import pytest

from glowplug.deploy.emit import to_yaml
from glowplug.deploy.make import files, stream

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "gpu": {},
    "gpu-karpenter-keda": {
        "nodes": "karpenter", "cluster": "demo", "autoscale": "keda", "pod_monitor": True, "max_replicas": 4,
        "ingress_host": "llm.example.com", "api_key_secret": "llm-key", "region": "eu-central-1",
    },
    "gpu-auto-hpa": {
        "nodes": "auto", "cluster": "demo", "autoscale": "hpa", "dashboard": True, "publish": "replicas", "identity": "irsa",
        "account": "111122223333", "load_test": "Qwen/Qwen3-32B",
    },
    "neuron": {"target": "neuron"},
    "neuron-neighbours": {"target": "neuron", "weights": "65GB", "instance": "trn1.32xlarge", "rollout": "surge", "replicas": 2},
}  # fmt: skip
# Not the files for Terraform and CloudFormation: they hold the documents of policies/, which are to be written down once.
BESIDE = {"neuron-helm-values.yaml": {"target": "neuron", "weights": "65GB", "instance": "trn1.32xlarge"}}


def compare(path, text):
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_as_it_was(design, case):
    compare(GOLDEN / f"{case}.yaml", stream(design(**CASES[case])))


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_beside_the_manifests_is_as_it_was(design, name):
    compare(GOLDEN / name, next(file.text for file in files(design(**BESIDE[name])) if file.path == name))


def test_the_kustomization_lists_every_manifest(design):
    made = files(design(nodes="karpenter", cluster="demo", autoscale="keda"))
    text = next(file.text for file in made if file.path == "kustomization.yaml")
    assert text.endswith(to_yaml({"resources": [file.path for file in made if file.objects]}))
