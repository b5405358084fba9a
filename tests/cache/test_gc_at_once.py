"""Collections beside publishers and readers, all processes of their own, on a folder and on a real S3 server.

What is old goes while it is being replaced. Readers may find a miss; what they find is never a part of a generation.

A publication must not outlast the grace period. How long one takes is up to the machine, so no clock decides here: what was
written before the oldest publication under way began is past the grace period, and everything since is not.
"""

import os
import subprocess
import sys
import time
import uuid

import pytest
from cache_samples import DIGEST, TRUST

from glowplug.cache.repository import Repository
from glowplug.cache.verify import verify_generation
from glowplug.store import open_store

ENOUGH = {"published": 4, "found": 4, "removed generation": 2, "removed pack": 2}

COMMON = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from cache_samples import *
from glowplug.cache.gc import Limits, plan, store_now_s
from glowplug.cache.sweep import sweep
from glowplug.cache.verify import verify_generation
from glowplug.store import open_store
store = open_store(sys.argv[2], env=os.environ)
repository, folder, name = Repository(store), pathlib.Path(sys.argv[3]), sys.argv[4]
log = open(folder / f"{name}.log", "w", buffering=1)
more = lambda: not (folder / "enough").exists()
"""

PUBLISHER = (
    COMMON
    + """
while more():
    begun, half = folder / f"{name}.begun", folder / f"{name}.half"
    half.write_text(str(store_now_s(store)))
    half.replace(begun)
    tree = make_tree(folder / name, {"inductor/a.so": os.urandom(3000), "inductor/b.so": os.urandom(3000)})
    if publish(store, tree).published:
        print("published", file=log)
"""
)

READER = (
    COMMON
    + """
while more():
    pointer = repository.latest(DIGEST)
    problem = "missed" if pointer is None else verify_generation(repository, DIGEST, pointer.generation, TRUST).problem
    if not problem:
        print("found", file=log)
    elif pointer is not None and repository.latest(DIGEST) == pointer:
        print(f"problem: {problem}", file=log)
"""
)

COLLECTOR = (
    COMMON
    + """
grace_s = 3600.0
while more():
    begun = [float(path.read_text()) for path in folder.glob("*.begun")]
    if len(begun) < 2:
        continue
    now_s = min(begun) - 1 + grace_s  # S3 tells whole seconds
    limits = Limits(keep=1, grace_s=grace_s, max_age_s=grace_s, max_bytes=0)
    for removal in sweep(repository, list(plan(repository, TRUST, limits, now_s=now_s)), grace_s=grace_s, now_s=now_s):
        print(f"removed {removal.kind}", file=log)
    time.sleep(0.05)  # which leaves the publishers some of a small machine
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

    def begin(code, name):
        command = [sys.executable, "-c", code, os.path.dirname(__file__), url, tmp_path, name]
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)

    def lines():
        return [line for path in tmp_path.glob("*.log") for line in path.read_text().splitlines()]

    code_of = {"publisher1": PUBLISHER, "publisher2": PUBLISHER, "reader": READER, "collector1": COLLECTOR, "collector2": COLLECTOR}
    children = [begin(code, name) for name, code in code_of.items()]
    try:
        while any(lines().count(what) < number for what, number in ENOUGH.items()):
            time.sleep(0.1)
            if any(child.poll() for child in children):
                break
    finally:
        (tmp_path / "enough").touch()
        ended = [(child.communicate()[1], child.returncode) for child in children]
    assert ended == [("", 0)] * len(children)

    problems = [line for line in lines() if line.startswith("problem")]
    repository = Repository(open_store(url, env=env))
    pointer = repository.latest(DIGEST)
    if pointer is not None:
        problems.append(verify_generation(repository, DIGEST, pointer.generation, TRUST).problem)
    assert not any(problems)
