"""Manifests that were written by hand, of the guides and of the doctor's tests, are ones that an API server takes."""

import pytest
import yaml

from testbed.vllm_env import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

FILES = sorted([*ROOT.glob("docs/guides/*/manual.yaml"), *ROOT.glob("tests/doctor/manifests/*.yaml")])
NOT_DEFINED = {"InferenceService", "LeaderWorkerSet", "ClusterConfig"}
"""Of KServe and LeaderWorkerSet, whose definitions the server does not have, and of eksctl, which sends nothing to one."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_server_accepts(file, api):
    documents = [each for each in yaml.load_all(file.read_text(), yaml.CSafeLoader) if each["kind"] not in NOT_DEFINED]
    assert documents
    for document in documents:
        api.apply({**document, "metadata": {**document["metadata"], "namespace": "default"}}, dry_run=True)
