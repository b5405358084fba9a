"""Well-made manifests of others: what a plain web server is, is none of our business, and no well-made engine is cried wolf at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doctor.kube import check

MANIFESTS = Path(__file__).parent / "manifests"
# What is left to say about each: rules that find something, with their reason. Errors and warnings are true ones.
EXPECTED = {
    "nginx.yaml": {},
    "vllm-docs.yaml": {
        "GP101": "killed after 90 s",
        "GP032": "image: latest",
        "GP107": "one GPU, default strategy",
        "GP017": "only the hub's cache is kept",
        "GP040": "remote code, not pinned",
    },
    "production-stack.yaml": {"GP017": "only the hub's cache is kept", "GP413": "replicas beside a ScaledObject"},
    "eks-guide.yaml": {},
    "nim.yaml": {},
    "kserve.yaml": {"GP017": "no cache is kept"},
}


def test_every_manifest_is_looked_at():
    assert {path.name for path in MANIFESTS.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize(("name", "expected"), list(EXPECTED.items()), ids=list(EXPECTED))
def test_only_what_is_true_is_said(name, expected):
    checked = check((MANIFESTS / name).read_text())
    assert {finding.rule for finding in checked.findings} == set(expected), [finding.sentence for finding in checked.findings]
    assert checked.objects >= 2 or name == "nim.yaml"
