"""Collections beside publishers and readers, all processes of their own, on a folder and on a real S3 server.

What is old goes while it is being replaced. Readers may find a miss; what they find is never a part of a generation.
"""

import json
import os
import subprocess
import sys
import uuid

import pytest
from cache_samples import DIGEST, TRUST

from glowplug.cache.repository import Repository
from glowplug.cache.verify import verify_generation
from glowplug.store import open_store

GRACE_S = 3.0
RUN_S = 8.0

COMMON = """
import json, os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from cache_samples import *
from glowplug.cache.gc import Limits, plan, store_now_s
from glowplug.cache.sweep import sweep
from glowplug.cache.verify import verify_generation
from glowplug.errors import GlowplugError
from glowplug.store import open_store
store = open_store(sys.argv[2], env=os.environ)
repository, folder, end = Repository(store), pathlib.Path(sys.argv[3]), time.monotonic() + float(sys.argv[4])
"""

PUBLISHER = (
    COMMON
    + """
slowest, published = 0.0, 0
while time.monotonic() < end:
    tree = make_tree(folder, {"inductor/a.so": os.urandom(3000), "inductor/b.so": os.urandom(3000)})
    begun = time.monotonic()
    published += publish(store, tree).published
    slowest = max(slowest, time.monotonic() - begun)
    time.sleep(0.05)
print(json.dumps({"slowest_s": slowest, "published": published}))
"""
)

READER = (
    COMMON
    + """
problems, found, missed = set(), 0, 0
while time.monotonic() < end:
    pointer = repository.latest(DIGEST)
    if pointer is None:
        missed += 1
        continue
    problem = verify_generation(repository, DIGEST, pointer.generation, TRUST).problem
    found += not problem
    if problem and repository.latest(DIGEST) == pointer:
        problems.add(problem)
print(json.dumps({"found": found, "missed": missed, "problems": sorted(problems)}))
"""
)

COLLECTOR = (
    COMMON
    + """
grace_s, removed = float(sys.argv[5]), []
while time.monotonic() < end:
    now_s = store_now_s(store)
    limits = Limits(keep=1, grace_s=grace_s, max_age_s=grace_s, max_bytes=0)
    removals = list(plan(repository, TRUST, limits, now_s=now_s))
    removed += [removal.kind for removal in sweep(repository, removals, grace_s=grace_s, now_s=now_s)]
    time.sleep(0.05)
print(json.dumps({"removed": {kind: removed.count(kind) for kind in set(removed)}}))
"""
)


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def place(request, tmp_path):
    """A store's URL and environment."""
    if request.param == "file":
        return f"file://{tmp_path}/store", dict(os.environ)
    server = request.getfixturevalue("seaweedfs")
    return f"s3://{server.bucket}/gc/{uuid.uuid4().hex}", os.environ | server.env


def test_publishers_readers_and_collections_at_once(place, tmp_path):
    url, env = place

    def begin(code, name, *words):
        command = [sys.executable, "-c", code, os.path.dirname(__file__), url, tmp_path / name, str(RUN_S), *words]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    publishers = [begin(PUBLISHER, f"publisher{number}") for number in range(2)]
    readers = [begin(READER, "reader")]
    collectors = [begin(COLLECTOR, f"collector{number}", str(GRACE_S)) for number in range(2)]
    told = {}
    for child in (*publishers, *readers, *collectors):
        out, error = child.communicate(timeout=120)
        assert child.returncode == 0, error
        told[child.pid] = json.loads(out)

    removed = [told[child.pid]["removed"] for child in collectors]
    assert sum(each.get("generation", 0) for each in removed) > 0
    assert sum(each.get("pack", 0) for each in removed) > 0
    assert sum(told[child.pid]["found"] for child in readers) > 0
    assert sum(told[child.pid]["published"] for child in publishers) > 2
    problems = [problem for child in readers for problem in told[child.pid]["problems"]]
    repository = Repository(open_store(url, env=env))
    pointer = repository.latest(DIGEST)
    if pointer is not None:
        problems.append(verify_generation(repository, DIGEST, pointer.generation, TRUST).problem)
    if any(problems) and max(told[child.pid]["slowest_s"] for child in publishers) > GRACE_S - 1:  # S3 tells whole seconds
        pytest.skip("this machine is too slow for the grace period, which a publication must not outlast")
    assert not any(problems)
