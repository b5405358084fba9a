"""The fuzzer itself: it runs, it sees what it is there to see, and what it has found stays mended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from glowplug.cache import layout
from glowplug.cache.quarantine.verdicts import verdict_on
from glowplug.store.memory import MemoryStore

_ROOT = Path(__file__).resolve().parents[2]
# Each line is an escape; the last one is none.
_ESCAPES = """
import os, pathlib, shutil, sys
from benchmarks.fuzz_watch import Watch
allowed, other = pathlib.Path(sys.argv[1], "allowed"), pathlib.Path(sys.argv[1], "other")
allowed.mkdir(); other.mkdir(); (other / "file").touch(); (allowed / "file").touch()
watch = Watch()
watch.arm(allowed)
(other / "file").write_bytes(b"x")
os.rename(allowed / "file", other / "moved")
os.link(other / "moved", allowed / "linked")
os.symlink("/etc", allowed / "link")
(allowed / ".." / "other" / "climbed").mkdir()
descriptor = os.open(other, os.O_RDONLY)
os.remove("file", dir_fd=descriptor)
os.chmod(other, 0o700)
shutil.rmtree(other)
(allowed / "fine").write_bytes(b"x")
watch.disarm()
print(len([escape for escape in watch.escapes if "fine" in escape]), *(escape.split()[0] for escape in watch.escapes))
"""


def run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, cwd=_ROOT).stdout


def test_some_hundred_cases_find_nothing(tmp_path):
    found = json.loads(run("-m", "benchmarks.fuzz_bundles", "--worker", "0", "--cases", "300", "--folder", str(tmp_path)))
    assert found["failures"] == []
    assert found["cases"] >= 300
    assert found["peak_bytes"] < 512 * 1024**2
    kinds = {name.partition(":")[0] for name in found["outcomes"]}
    assert kinds == {"pack", "manifest", "signed", "pointer", "lease", "verdict", "testimony", "envelope", "key"}
    assert found["outcomes"]["pack: restored"] > 0
    assert found["outcomes"]["pack: BadPack"] > 0


def test_what_it_has_found_once_stays_mended(tmp_path):
    """Packs with a frame after their end, which a restore took and verify refused, and keys for which OpenSSL had no words."""
    packs = ["('pack', 4091744726, [], 4, [])", "('pack', 439955986, [], 4, [])", "('pack', 48522465, [], 4, [])"]
    keys = ["('key', 1615216264, [2, 2, 2], 2, [])", "('key', 3699528962, [3], 0, 0)"]
    cases = [word for case in [*packs, *keys] for word in ("--case", case)]
    found = json.loads(run("-m", "benchmarks.fuzz_bundles", *cases, "--folder", str(tmp_path)))
    assert found == {"failures": [], "outcomes": {"pack: BadPack": 3, "key: UsageError": 2}}


def test_whatever_happens_elsewhere_is_seen(tmp_path):
    fine, *seen = run("-c", _ESCAPES, str(tmp_path)).split()
    assert fine == "0"
    assert {"open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.chmod", "shutil.rmtree"} <= set(seen)


@pytest.mark.parametrize("by", [[], {}, None, 1, "nobody"])
def test_a_verdict_by_nobody_in_particular_is_one_all_the_same(by):
    store = MemoryStore()
    store.put(layout.quarantine_key("e" * 64, "a" * 64), json.dumps({"by": by, "reason": "r"}).encode())
    verdict = verdict_on(store, "e" * 64, "a" * 64)
    assert (verdict.by, verdict.reason) == ("hand", "r")
