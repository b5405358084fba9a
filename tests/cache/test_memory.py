"""The promise: what restoring and publishing take of memory does not grow with the cache: 1 GiB in less than 200 MiB."""

import os
import subprocess
import sys

import pytest

from glowplug.units import GIB, MIB

pytestmark = pytest.mark.slow

CODE = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from cache_samples import peak_rss_bytes, publish, start
from glowplug.store.local import LocalStore
scratch = pathlib.Path(sys.argv[2])
store = LocalStore(scratch / "store", url="file://store")
if sys.argv[3] == "publish":
    done = publish(store, scratch / "tree", env={"HF_TOKEN": "hf_0123456789"}).manifest
    print(done.size_bytes, done.pack.size_bytes)
else:
    print(start(store, scratch / "live").bytes)
print(peak_rss_bytes())
"""


def run(tmp_path, what):
    done = subprocess.run(
        [sys.executable, "-c", CODE, os.path.dirname(__file__), tmp_path, what], capture_output=True, text=True, check=True
    )
    *numbers, peak = map(int, done.stdout.split())
    return numbers, peak


def test_a_gibibyte_is_published_and_restored_in_less_than_200_mib(tmp_path):
    """One file of 64 MiB under 16 names: real content to read, pack and write, without its room on the disk twice."""
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    if free < 2 * GIB:
        pytest.skip("needs 2 GiB of disk")
    folder = tmp_path / "tree" / "inductor"
    folder.mkdir(parents=True)
    block = os.urandom(MIB)
    with open(folder / "0", "wb") as file:
        file.writelines(block if number % 4 else os.urandom(MIB) for number in range(64))
    for number in range(1, 16):
        os.link(folder / "0", folder / str(number))
    (tmp_path / "live").mkdir()

    (size_bytes, pack_bytes), peak = run(tmp_path, "publish")
    assert size_bytes == GIB
    assert pack_bytes > 200 * MIB
    assert peak < 200 * MIB
    (size_bytes,), peak = run(tmp_path, "restore")
    assert size_bytes == GIB
    assert peak < 200 * MIB
