"""Single flight, as a fleet meets it: real processes that start at once on one envelope, are killed, stopped, and fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.run.program import TIMEOUT_S, eventually
from tests.store.stub import Stub, error, reply

# Compiles until the file $GO is there, and leaves a line in $LOG as soon as it begins.
SLOW_COMPILER = """
import os, pathlib, sys, time
graph = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "00", "c0.so")
if graph.exists():
    graph.read_bytes()
    print("loaded", flush=True)
    sys.exit()
with open(os.environ["LOG"], "a") as log:
    log.write(f"{os.getpid()}\\n")
print("compiling", flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
if os.environ.get("CRASH"):
    sys.exit(3)
graph.parent.mkdir(parents=True, exist_ok=True)
graph.write_bytes(os.urandom(1000))
"""
WAITS = "compiles the same: waiting for it"


class Fleet:
    """Starts of one command on one envelope, each with a live folder and a report of its own."""

    def __init__(self, program, stack):
        self.program = program
        self.stack = stack
        self.go = program.folder / "go"
        self.log = program.folder / "log"
        script = program.folder / "slow.py"
        script.write_text(SLOW_COMPILER)
        self.command = (sys.executable, str(script))

    @property
    def compiles(self):
        return len(self.engines)

    @property
    def engines(self):
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def begin(self, number=1, *, options=(), env=None):
        """So many starts at once."""
        starts = []
        for _ in range(number):
            report = self.program.folder / f"report-{uuid.uuid4().hex}.json"
            variables = {"GO": str(self.go), "LOG": str(self.log), **(env or {})}
            running = self.program.begin(*self.command, options=["--report", str(report), *options], env=variables)
            running._report = report
            starts.append(self.stack.enter_context(running))
        return starts

    def begin_holder(self, **rest):
        """One that has taken the lease, and compiles."""
        [holder] = self.begin(**rest)
        holder.wait_for("compiling", "out")
        return holder

    def let_go(self):
        self.go.touch()

    def leases(self):
        return [json.loads(path.read_bytes()) for path in self.program.store.glob("v1/*/lease")]

    def shorten_the_silence(self):
        """A dead holder's lease ends after 1 s, and not after 20."""
        [path] = self.program.store.glob("v1/*/lease")
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"ttl_s": 1.0}))


@pytest.fixture
def fleet(glowplug):
    with contextlib.ExitStack() as stack:
        made = Fleet(glowplug, stack)
        try:
            yield made
        finally:
            made.let_go()  # whatever still compiles


def phases(ended):
    return {phase["name"]: phase["seconds"] for phase in ended.report["phases"]}


def test_of_five_that_start_at_once_one_compiles_and_the_others_get_what_it_has_published(fleet):
    starts = fleet.begin(5)
    eventually(lambda: sum(WAITS.encode() in start._text["err"] for start in starts) == 4)
    fleet.let_go()
    ended = [start.end() for start in starts]
    assert [each.code for each in ended] == [0] * 5
    assert fleet.compiles == 1
    assert sorted(each.report["outcome"] for each in ended) == ["hit"] * 4 + ["miss"]
    assert all(("wait" in phases(each)) == (each.report["outcome"] == "hit") for each in ended)
    assert sum(each.out == b"loaded\n" for each in ended) == 4
    [lease] = fleet.leases()
    assert lease["state"] == "published"


@pytest.mark.s3
def test_one_compiles_on_a_real_s3_server_as_well(fleet, seaweedfs):
    options = ["--store", f"s3://{seaweedfs.bucket}/flight-{uuid.uuid4().hex}"]
    starts = fleet.begin(4, options=options, env=seaweedfs.env)
    eventually(lambda: sum(WAITS.encode() in start._text["err"] for start in starts) == 3)
    fleet.let_go()
    ended = [start.end() for start in starts]
    assert fleet.compiles == 1
    assert sorted(each.report["outcome"] for each in ended) == ["hit"] * 3 + ["miss"]


# --- what becomes of the holder


def test_when_the_holder_is_killed_one_other_compiles_and_the_rest_wait_for_that(fleet):
    holder = fleet.begin_holder()
    others = fleet.begin(3)
    for other in others:
        other.wait_for(WAITS)
    holder.signal(signal.SIGKILL)
    os.kill(fleet.engines[0], signal.SIGKILL)
    holder.process.wait()
    fleet.shorten_the_silence()
    eventually(lambda: fleet.compiles == 2)
    fleet.let_go()
    ended = [other.end() for other in others]
    assert sorted(each.report["outcome"] for each in ended) == ["hit", "hit", "miss"]
    assert fleet.compiles == 2


def test_a_holder_that_is_killed_and_restarted_in_place_takes_over_from_itself_at_once(fleet):
    fleet.begin_holder().signal(signal.SIGKILL)
    os.kill(fleet.engines[0], signal.SIGKILL)  # as the kernel does with a container
    begun = time.monotonic()
    again = fleet.begin_holder()
    assert time.monotonic() - begun < 15  # it has not watched for 20 s whether it is dead
    assert WAITS.encode() not in again._text["err"]
    fleet.let_go()
    assert again.end().report["publish"]["state"] == "published"


def test_when_the_holder_is_stopped_one_other_compiles_at_once(fleet):
    holder = fleet.begin_holder()
    others = fleet.begin(3)
    for other in others:
        other.wait_for(WAITS)
    begun = time.monotonic()
    holder.signal(signal.SIGTERM)
    assert holder.end().code == 143
    eventually(lambda: fleet.compiles == 2)
    assert time.monotonic() - begun < 15
    fleet.let_go()
    assert sorted(other.end().report["outcome"] for other in others) == ["hit", "hit", "miss"]
    assert fleet.compiles == 2


def test_when_the_holders_engine_crashes_all_others_go_cold_at_once_and_form_no_queue(fleet):
    holder = fleet.begin_holder()
    others = fleet.begin(2)
    for other in others:
        other.wait_for(WAITS)
    os.kill(fleet.engines[0], signal.SIGSEGV)
    assert holder.end().code == 139
    eventually(lambda: fleet.compiles == 3)
    fleet.let_go()
    ended = [other.end() for other in others]
    assert all("has compiled the same, and published nothing" in each.report["reason"] for each in ended)
    assert fleet.leases()[0]["state"] == "failed"


def test_a_start_after_one_that_failed_compiles_for_all_again(fleet):
    fleet.let_go()
    [failed] = fleet.begin(env={"CRASH": "1"})
    assert failed.end().code == 3
    [again] = fleet.begin()
    assert again.end().report["publish"]["state"] == "published"
    assert fleet.leases()[0]["state"] == "published"


def test_a_holder_that_has_lost_its_lease_compiles_on_and_leaves_the_next_ones_alone(fleet):
    holder = fleet.begin_holder()
    [path] = fleet.program.store.glob("v1/*/lease")
    theirs = {**json.loads(path.read_bytes()), "id": "of another"}
    path.unlink()
    path.write_text(json.dumps(theirs))
    fleet.let_go()
    ended = holder.end()
    assert (ended.code, ended.report["publish"]["state"]) == (0, "published")
    assert fleet.leases() == [theirs]


# --- how long, and for whom a start waits


def test_a_start_waits_no_longer_than_it_was_told_to(fleet):
    fleet.begin_holder()
    [impatient] = fleet.begin(options=["--wait", "1s"])
    impatient.wait_for("compiling", "out")
    fleet.let_go()
    ended = impatient.end()
    assert "compiles the same, and is not waited for any longer (--wait 1s)" in ended.report["reason"]
    assert 0.9 < phases(ended)["wait"] < 5
    assert ended.report["publish"]["state"] in {"exists", "published"}  # whichever of the two is first


def test_a_start_that_may_not_wait_compiles_at_once(fleet):
    fleet.begin_holder()
    [hasty] = fleet.begin(options=["--wait", "0"])
    hasty.wait_for("compiling", "out")
    assert WAITS.encode() not in hasty._text["err"]
    assert fleet.compiles == 2


def test_a_reader_waits_for_a_writer_and_goes_cold_where_there_is_none(fleet):
    reading = ["--role", "reader"]
    fleet.let_go()
    [alone] = fleet.begin(options=reading)
    ended = alone.end()
    assert (ended.report["outcome"], "wait" in phases(ended)) == ("miss", False)
    assert not fleet.leases()

    fleet.go.unlink()
    fleet.program.forget()
    holder = fleet.begin_holder()
    before = fleet.leases()[0]["id"]
    [reader] = fleet.begin(options=reading)
    reader.wait_for(WAITS)
    fleet.let_go()
    assert holder.end().report["publish"]["state"] == "published"
    assert reader.end().report["outcome"] == "hit"
    assert fleet.leases()[0]["id"] == before


@pytest.mark.parametrize("option", ["--no-publish", "--no-restore", "--no-cache"])
def test_a_start_that_shares_nothing_takes_no_lease(fleet, option):
    fleet.let_go()
    [start] = fleet.begin(options=[option], env={"TORCHINDUCTOR_CACHE_DIR": str(fleet.program.folder / "own")})
    assert start.end().code == 0
    assert not fleet.leases()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_start_that_waits_at_once_and_no_engine_is_started(fleet, name):
    fleet.begin_holder()
    [waiting] = fleet.begin()
    waiting.wait_for(WAITS)
    begun = time.monotonic()
    waiting.signal(getattr(signal, name))
    assert waiting.end().code == 128 + getattr(signal, name)
    assert time.monotonic() - begun < 10
    assert fleet.compiles == 1
    assert fleet.leases()[0]["state"] == "held"


def test_a_store_that_fails_while_it_is_waited_at_ends_the_wait(fleet):
    fleet.begin_holder()
    [waiting] = fleet.begin()
    waiting.wait_for(WAITS)
    fleet.program.store.rename(fleet.program.folder / "gone")
    fleet.program.store.write_text("no folder")
    waiting.wait_for("compiling", "out")
    fleet.let_go()
    ended = waiting.end()
    assert ended.code == 0
    assert "the store no longer tells what" in ended.report["reason"]


def test_a_store_without_conditional_writes_means_no_single_flight_which_is_said_once(fleet):
    def no_conditions(seen):
        if seen.method == "PUT":
            return reply(200, ETag='"always"')
        return reply(200, b"<ListBucketResult/>") if "list-type=2" in seen.target else error(404, "NoSuchKey")

    fleet.let_go()
    with Stub(no_conditions) as stub:
        [start] = fleet.begin(options=["--store", "s3://bucket/x"], env=stub.env)
        ended = start.end()
    assert ended.code == 0
    assert len(ended.said("no single flight")) == 1
    assert fleet.compiles == 1


def test_what_anybody_writes_as_a_lease_delays_a_start_for_no_longer_than_it_waits(fleet):
    fleet.let_go()
    [start] = fleet.begin(options=["--no-publish"])
    envelope = start.end().report["cache"]["envelope"]
    lease = Path(fleet.program.store, "v1", envelope, "lease")
    lease.parent.mkdir(parents=True)
    lease.write_bytes(b"\xff" * 1_000_000)
    fleet.program.forget()
    [start] = fleet.begin(options=["--wait", "1s"])
    ended = start.end(TIMEOUT_S)
    assert (ended.code, ended.report["publish"]["state"]) == (0, "published")
    assert "somebody (pid 0) compiles the same" in ended.report["reason"]
