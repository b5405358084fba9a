"""A client of the control plane, and manifests as they are piped to kubectl."""

import contextlib
import functools
import re

import pytest

from glowplug.deploy.commented import plain
from glowplug.deploy.make import objects, stream
from tests.deploy.conftest import design_of

RESTRICTED = "pod-security.kubernetes.io/warn"


def documents(**given):
    """Each object that deploy writes, and the text that it writes for it."""
    return _documents(tuple(sorted(given.items())))


@functools.cache
def _documents(items):
    design = design_of(**dict(items))
    texts = re.split(r"^---\n", stream(design), flags=re.MULTILINE)[1:]
    return list(zip([plain(each) for each in objects(design)], texts, strict=True))


@pytest.fixture(scope="session")
def api(control_plane):
    """The server warns of pods that are not up to the restricted standard."""
    with contextlib.closing(control_plane.api()) as client:
        for name in ("default", "llm"):
            about = {"name": name, "labels": {RESTRICTED: "restricted"}}
            client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        yield client
