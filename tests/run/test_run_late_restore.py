"""A restore beside the engine's imports: hidden behind them if all goes well, and in nobody's way if it does not."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from glowplug.cache.families import FAMILIES
from glowplug.cache.lease import Holder, State, take
from glowplug.cache.live import claim
from glowplug.cache.repository import Repository
from glowplug.cache.trust import Trust
from glowplug.engines.base import ExitReadiness, Launch
from glowplug.engines.generic.log import GenericLog
from glowplug.run.clock import Clock
from glowplug.run.console import Console
from glowplug.run.options import RunOptions
from glowplug.run.restoration import Restoration
from glowplug.run.restoring import Prepared
from glowplug.run.start import Start
from glowplug.run.weights import Weights
from glowplug.store.memory import MemoryStore
from glowplug.timeline.report import EngineInfo
from glowplug.units import MIB
from tests.cache import cache_samples as samples
from tests.run import stand_ins
from tests.run.program import Program, eventually

BYTES = 10_000_000
QUICK = 15_000_000  # bytes a second: two graphs take 1.4 s, and by the estimate none, so that the engine does not wait for them
SLOW = 1_000_000  # for what ends before the restore does
STORE = ["--store", "s3://bucket/x", "--no-publish"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A generation of two graphs, and the command that it fits."""
    program = Program(tmp_path_factory.mktemp("shop"))
    words = stand_ins.vllm(program.folder).words
    with program.begin(*words, env={"BYTES": str(BYTES)}) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        start.end()
    program.extra["GLOWPLUG_TRUSTED_KEYS"] = str(program.keys / "trusted")
    (program.folder / "buckets" / "bucket").mkdir(parents=True)
    (program.folder / "buckets" / "bucket" / "x").symlink_to(program.store)
    return program, words


@pytest.fixture
def glowplug(shop):
    """A node that knows nothing of it."""
    for folder in shop[0].folder.glob("live*"):
        shutil.rmtree(folder)
    return shop[0]


@pytest.fixture
def vllm(shop):
    return shop[1]


@pytest.fixture
def begin(glowplug, vllm, range_server):
    """Begins a start whose store gives so many bytes a second."""

    def work(speed, **env):
        server = range_server(glowplug.folder / "buckets", bandwidth=speed)
        return glowplug.begin(*vllm, options=STORE, env=server.env | env)

    return work


def phase(report, name):
    [found] = [phase for phase in report["phases"] if phase["name"] == name]
    return found["start_s"], found["start_s"] + found["seconds"]


def ended_after(start, text="ready in"):
    start.wait_for(text)
    start.signal(signal.SIGTERM)
    return start.end()


def test_the_engine_is_spawned_while_the_restore_goes_on_and_hits(glowplug, begin):
    with begin(QUICK) as start:
        start.wait_for("argv", "out")
        ended = ended_after(start)
    report = ended.report
    assert (report["outcome"], report["cache"]["files_new"], report["cache"]["files_read"]) == ("hit", 0, 2)
    assert not ended.said("cold start:")
    restored_s = phase(report, "restore")[1]
    assert restored_s - phase(report, "spawn")[1] > 0.5
    assert report["wall_s"] >= restored_s
    assert [each["start_s"] for each in report["phases"]] == sorted(each["start_s"] for each in report["phases"])
    assert not glowplug.half_written()


def test_the_engine_is_spawned_once_the_rest_of_the_restore_surely_fits_into_its_imports(tmp_path):
    """The rest, and half a second, at 50 MiB a second."""
    for imports_s, at_once, left in ((0.0, False, 0), (3.0, False, 125 * MIB), (12.0, True, 500 * MIB)):
        with claim(tmp_path / str(imports_s), "0" * 64) as live:
            restoration = a_restoration(Prepared(launch(imports_s), live=live), RunOptions(), Trust())
            restoration.found(SimpleNamespace(size_bytes=500 * MIB))
            assert restoration.in_use() is at_once
            restoration.progress(500 * MIB - left - 1)
            assert restoration.in_use() is at_once
            restoration.progress(1)
            assert restoration.in_use() is bool(left)


def launch(imports_s):
    return Launch(
        EngineInfo("vllm", None), {}, relocatable=True, families=tuple(FAMILIES.values()), readiness=ExitReadiness(), ranks=1,
        log=GenericLog, imports_s=imports_s,
    )  # fmt: skip


def a_restoration(prepared, options, trust):
    clock, console, env = Clock(), Console(2), {"GLOWPLUG_TRUSTED_KEYS": samples.SIGNER.public.pem}
    start = Start(options, env, clock, console, Weights(options, ("x",), env, console, clock))
    return Restoration(start, prepared, trust, signer=None)


@pytest.fixture
def waiting(tmp_path):
    """A start that has waited in vain for another's generation, as its engine may be spawned, and how to publish that."""
    store = MemoryStore()
    lease = take(store, samples.DIGEST, Holder(host="other"), over=None)
    with claim(tmp_path / "live", samples.DIGEST) as live:
        prepared = Prepared(launch(0.1), samples.ENVELOPE, live, repository=Repository(store))
        spawned = a_restoration(prepared, RunOptions(wait_s=0.1), samples.TRUST).begin()
        assert spawned.late is not None
        yield spawned, lambda: samples.publish(store, samples.make_tree(tmp_path / "tree", samples.SMALL_TREE))
        spawned.settled()
    lease.finish(State.ABANDONED)


def ended_by_itself(spawned):
    ended = threading.Event()
    spawned.late.then(ended.set)
    assert ended.wait(20)
    return spawned.settled().search


def test_a_wait_at_which_the_store_falls_silent_ends_with_its_own_reason(tmp_path):
    class Silent(MemoryStore):
        looks, ended = 0, threading.Event()

        def head(self, key):
            self.looks += 1
            if self.looks > 1:
                self.ended.wait(20)
            return super().head(key)

    store = Silent()
    take(store, samples.DIGEST, Holder(host="other", pid=7), over=None)
    with claim(tmp_path / "live", samples.DIGEST) as live:
        prepared = Prepared(launch(0), samples.ENVELOPE, live, repository=Repository(store))
        spawned = a_restoration(prepared, RunOptions(wait_s=0.1), samples.TRUST).begin()
        assert spawned.search.lookup.reason == "other (pid 7) compiles the same, and is not waited for any longer (--wait 0.1s)"
    store.ended.set()


def test_who_has_waited_in_vain_takes_what_appears_before_its_engine_compiles(waiting):
    spawned, publish = waiting
    published = publish().manifest
    assert ended_by_itself(spawned).restored.generation == published.digest
    assert samples.snapshot(spawned.live.path).keys() == samples.SMALL_TREE.keys()


def test_who_has_waited_in_vain_looks_on_no_longer_once_its_engine_compiles(waiting):
    spawned, publish = waiting
    samples.make_tree(spawned.live.path, {"inductor/own.so": b"own"})
    search = ended_by_itself(spawned)
    assert (search.restored, search.may_publish) == (None, True)
    assert "not waited for any longer (--wait 0.1s)" in search.lookup.reason
    publish()
    assert samples.snapshot(spawned.live.path).keys() == {"inductor/own.so"}


def test_an_engine_that_compiles_before_the_restore_is_done_is_left_alone(glowplug, begin, tmp_path):
    with begin(QUICK, DOES="eager", COMPILES_UNTIL=str(tmp_path / "go")) as start:
        start.wait_for("cold start: the engine began to compile before the restore was done")
        (tmp_path / "go").touch()
        ended = ended_after(start)
    assert (ended.code, ended.report["outcome"], ended.report["cache"]["files"]) == (0, "miss", 0)
    graphs = list(glowplug.live.glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone/*"))
    assert sorted(path.stat().st_size for path in graphs) == [1000, 1000]  # its own
    assert not glowplug.half_written()


def test_an_engine_that_is_ready_before_the_restore_is_done_calls_it_off(glowplug, begin):
    with begin(SLOW, DOES="eager") as start:
        ended = ended_after(start)
    assert (ended.code, ended.report["outcome"]) == (0, "miss")
    assert "the engine was ready before it was done" in ended.report["reason"]
    assert len(list(glowplug.live.glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone/*"))) == 2
    eventually(lambda: not glowplug.half_written())


def test_a_damaged_pack_is_refused_beside_the_engine_as_well_which_compiles(glowplug, begin):
    [pack] = glowplug.store.glob("v1/*/packs/*")
    good = pack.read_bytes()
    pack.write_bytes(good[: len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1 :])
    try:
        with begin(QUICK) as start:
            start.wait_for("argv", "out")
            ended = ended_after(start)
    finally:
        pack.write_bytes(good)
    assert (ended.code, ended.report["outcome"]) == (0, "refused")
    assert ended.said("cold start:")
    assert not glowplug.half_written()


def test_a_signal_beside_a_late_restore_reaches_the_engine_and_leaves_nothing_half_restored(glowplug, begin):
    with begin(SLOW) as start:
        eventually(lambda: list(glowplug.live.glob("*/.glowplug/staging-*")))
        eventually(lambda: os.listdir(f"/proc/{start.pid}/task/{start.pid}") and children(start.pid))
        begun = time.monotonic()
        start.signal(signal.SIGTERM)
        ended = start.end(20)
    assert ended.code == 143
    assert time.monotonic() - begun < 10
    assert not list(glowplug.live.glob("*/vllm/torch_compile_cache/*"))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()
