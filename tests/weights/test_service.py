"""Ranks as real processes read from one buffer: who gets what, who waits for whom, and what they are told when it goes wrong."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from glowplug.errors import LocalError, Unreachable
from glowplug.weights.buffer.host_buffer import HostBuffer
from glowplug.weights.buffer.peer import Peer
from glowplug.weights.buffer.service import Service
from glowplug.weights.fetch.plan import make_plan
from tests.weights.ranks import Filler, Rank, checkpoint_of, digests_of

SIZES = [5000, 0, 100_000, 7, 70_000, 300_000, 1, 40_000]
KIB = 1024


class Node:
    """A buffer, its service and a fetch, as the wrapper has them."""

    def __init__(self, *, memory=None, ranks=1, sizes=SIZES, files=2, grace_s=60.0, chunk=32 * KIB):
        self.checkpoint, self.contents = checkpoint_of(sizes, files=files)
        self.plan = make_plan(self.checkpoint, chunk_bytes=chunk, memory_bytes=memory)
        self.expected = digests_of(self.checkpoint, self.contents)
        self.buffer = HostBuffer("glowplug-test", self.plan.ring_bytes)
        self.service = Service(
            self.plan,
            self.buffer,
            uri="mem://model",
            ranks=ranks,
            grace_s=grace_s,
            on_floor=self._move,
        )
        self.filler = Filler(self.plan, self.contents, self.buffer.view, self.service.progress)
        self.path = self.service.path
        self.service.start()

    def _move(self, floor):
        self.filler.consumed(floor)

    def rank(self, rank=0, ranks=1, **behaviour):
        return Rank(self.path, rank, ranks, **behaviour)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.filler.stop()
        self.service.close()
        self.buffer.close()


@pytest.fixture
def node():
    """Makes nodes whose fetch runs, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(*, held=False, **options):
            made = stack.enter_context(Node(**options))
            if held:
                made.filler.allow(0)
            made.filler.start()
            return made

        yield make


def test_a_rank_reads_every_tensor_of_a_load_in_full(node):
    here = node()
    with here.rank() as rank:
        assert rank.hear() == {"attached": "full"}
        assert rank.end()["digests"] == here.expected
    assert here.service.wait_over(20)
    (stats,) = here.service.ranks
    assert (stats.tensors, stats.bytes, stats.skipped) == (16, 2 * sum(SIZES), 0)
    assert stats.attached_s <= stats.wanted_s <= stats.done_s


def test_four_ranks_share_a_window_and_the_source_is_read_once(node):
    here = node(memory=400 * KIB, ranks=4)
    assert not here.plan.is_full
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(here.rank(number, 4)) for number in range(4)]
        assert [rank.end()["digests"] for rank in ranks] == [here.expected] * 4
    assert here.service.wait_over(20)
    assert here.filler.bytes_read == here.checkpoint.size_bytes


def test_a_tensor_is_waited_for_and_handed_out_before_the_rest_is_there(node):
    here = node(held=True)
    with here.rank(hold_at=4) as rank:
        assert rank.hear() == {"attached": "full"}
        needed = here.plan.tensors[3].position + 7
        here.filler.allow(next(n for n, piece in enumerate(here.plan.ranges) if piece.position >= needed) + 1)
        assert rank.hear() == {"holds": 4}
        assert here.filler.filled < len(here.plan.ranges)
        rank.go_on()
        here.filler.allow(len(here.plan.ranges))
        assert rank.end()["digests"] == here.expected


def test_what_one_rank_writes_into_its_tensors_no_other_rank_sees_and_no_later_tensor_either(node):
    here = node(ranks=2, held=True)
    with here.rank(0, 2, scribble=True) as scribbler, here.rank(1, 2, hold_at_once=True) as reader:
        assert (scribbler.hear(), reader.hear()) == ({"attached": "full"}, {"attached": "full"})
        for ranges in range(1, len(here.plan.ranges) + 1):  # each tensor is overwritten as soon as it is there
            here.filler.allow(ranges)
            here.filler.wait_filled(ranges)
        assert scribbler.end()["digests"] == here.expected
        reader.go_on()
        assert reader.end()["digests"] == here.expected


def test_a_tensor_that_is_overwritten_at_once_does_not_hide_the_begin_of_the_next_one(node):
    size = 2 * mmap.PAGESIZE + 100  # the next tensor begins in the page in which this one ends, and in the next request
    here = node(held=True, sizes=[size, size], files=1, chunk=size)
    with here.rank(scribble=True, hold_at=1) as rank:
        assert rank.hear() == {"attached": "full"}
        here.filler.allow(1)
        here.filler.wait_filled(1)
        threading.Event().wait(0.3)  # time enough to be handed out too soon, and written to
        here.filler.allow(2)
        assert rank.hear() == {"holds": 1}
        rank.go_on()
        assert rank.end()["digests"] == here.expected


def test_a_rank_says_how_far_it_is_before_it_waits(node):
    ring = 24 * mmap.PAGESIZE
    here = node(memory=ring, sizes=[ring - 1000, 1000, ring, 1000, ring - 1000, 1, ring], files=1)
    assert here.plan.ring_bytes == ring
    with here.rank() as rank:
        assert rank.end()["digests"] == here.expected


def test_views_of_a_load_in_full_outlive_the_attachment_and_the_buffer(node):
    here = node()
    with here.rank(keep=True) as rank:
        assert rank.end()["digests"] == here.expected


def test_ranks_may_leave_tensors_out_and_run_ahead_of_the_fetch(node):
    here = node(memory=400 * KIB, ranks=2)
    with here.rank(0, 2, skip=2) as even, here.rank(1, 2, skip=2) as odd:
        found = even.end()
        assert found["skipped"] == 8
        assert found["digests"] | odd.end()["digests"] == here.expected
    assert here.service.wait_over(20)


def test_a_window_waits_for_its_slowest_rank(node):
    here = node(memory=400 * KIB, ranks=2)
    with here.rank(0, 2) as quick, here.rank(1, 2, hold_at_once=True) as slow:
        assert (quick.hear(), slow.hear()) == ({"attached": "windowed"}, {"attached": "windowed"})
        here.filler.wait_filled(5)
        assert here.filler.floor == 0
        slow.go_on()
        assert slow.end()["digests"] == here.expected
        assert quick.end()["digests"] == here.expected


def test_a_rank_that_is_killed_no_longer_holds_the_window(node):
    here = node(memory=400 * KIB, ranks=2)
    with here.rank(0, 2) as survivor, here.rank(1, 2, die_at=3) as victim:
        assert victim.end() == {"attached": "windowed"}
        assert survivor.end()["digests"] == here.expected
    assert here.service.wait_over(20)
    assert [stats.rank for stats in here.service.ranks] == [0]


def test_a_rank_that_never_comes_is_given_up_and_streams_by_itself_later(node):
    here = node(memory=400 * KIB, ranks=2, grace_s=0.3)
    with here.rank(0, 2) as rank:
        assert rank.end()["digests"] == here.expected
    with here.rank(1, 2) as late:
        assert late.end()["error"] == "BufferGone"


def test_a_rank_that_never_comes_is_waited_for_as_long_as_it_holds_nobody_up(node):
    here = node(memory=400 * KIB, ranks=2, grace_s=0.05)
    with here.rank(0, 2, hold_at_once=True) as early:
        assert early.hear() == {"attached": "windowed"}
        threading.Event().wait(0.5)
        with here.rank(1, 2) as late:
            assert late.hear() == {"attached": "windowed"}
            early.go_on()
            assert early.end()["digests"] == here.expected
            assert late.end()["digests"] == here.expected


def test_ranks_say_how_many_they_are_and_that_counts(node):
    here = node(memory=400 * KIB, ranks=8)
    with here.rank(0, 1) as rank:
        assert rank.end()["digests"] == here.expected
    assert here.service.wait_over(20)
    here = node(memory=400 * KIB, ranks=1)
    with here.rank(0, 2) as first, here.rank(1, 2) as second:
        assert first.end()["digests"] == second.end()["digests"] == here.expected


def test_a_second_pass_of_a_window_is_sent_away(node):
    here = node(memory=400 * KIB)
    with here.rank() as rank:
        assert rank.end()["digests"] == here.expected
    with here.rank() as again:
        assert again.end()["error"] == "BufferGone"


def test_late_and_repeated_readers_of_a_load_in_full_are_served_until_it_is_freed(node):
    here = node(ranks=2)
    with here.rank(0, 2, hold_at_end=True) as first:
        assert first.hear() == {"attached": "full"}
        assert first.hear() == {"holds": -1}
        with here.rank(1, 2) as second:
            assert second.end()["digests"] == here.expected
        with here.rank(1, 2) as again:
            assert again.end()["digests"] == here.expected
        first.go_on()
        assert first.end()["digests"] == here.expected
    assert here.service.wait_over(20)
    with here.rank(0, 2) as late:
        assert late.end() == {"error": "BufferGone", "message": "all ranks had their weights, and the buffer was freed", "hint": ""}


def test_a_failed_fetch_is_told_to_those_who_wait_and_to_those_who_come_later(node):
    here = node(held=True)
    error = Unreachable("s3://bucket/m.safetensors: no answer", object="s3://bucket/m.safetensors", hint="look at the store")
    with here.rank() as rank:
        assert rank.hear() == {"attached": "full"}
        here.service.fail(error)
        told = rank.end()
    with here.rank() as late:
        assert late.end() == told
    assert told == {"error": "LoadFailed", "message": f"{error.message} ({error.hint})", "hint": error.hint}


def test_nobody_of_another_user_is_answered(node):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    here = node()
    os.chmod(here.path.parent, 0o755)
    os.chmod(here.path, 0o666)
    program = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        """s.send(b'{"hello": {"protocol": 1, "rank": 0, "ranks": 1}}\\n'); print(s.recv(100))"""
    )
    heard = subprocess.run([sys.executable, "-c", program, str(here.path)], capture_output=True, text=True, check=False)
    assert heard.stdout.strip() == "b''" or "ConnectionReset" in heard.stderr or "BrokenPipe" in heard.stderr
    assert here.service.attached == 0


def test_the_socket_lies_in_a_folder_of_its_own_that_goes_with_it(node):
    here = node()
    folder = here.path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(os.fsencode(here.path)) < 100
    here.service.close()
    assert not folder.exists()


def test_nonsense_on_the_socket_ends_that_connection_alone(node):
    here = node()
    for nonsense in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b'{"hello": 7}\n',
        b'{"hello": {"rank": "x"}}\n',
        b"x" * 200_000,
        b"\xff\n",
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(20)
            stranger.connect(str(here.path))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stranger.sendall(nonsense)
                assert stranger.recv(100) == b""
    with here.rank() as rank:
        assert rank.end()["digests"] == here.expected


def test_a_loader_of_another_version_is_sent_away_with_both_versions_named(node):
    here = node()
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(here.path))
        other.sendall(b'{"hello": {"protocol": 99, "rank": 0, "ranks": 1, "pid": 1}}\n')
        assert "protocol 99" in json.loads(other.recv(1000))["gone"]


def test_a_rank_that_does_not_listen_holds_up_nobody(node, monkeypatch):
    real = Peer.__init__

    def small(peer, connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least that the kernel gives: a few messages
        real(peer, connection)

    monkeypatch.setattr(Peer, "__init__", small)
    here = node(ranks=2, chunk=KIB, sizes=[200_000] * 20)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(here.path))
        deaf.sendall(b'{"hello": {"protocol": 1, "rank": 1, "ranks": 2, "pid": 1}}\n')
        with here.rank(0, 2) as rank:
            assert rank.end()["digests"] == here.expected
        owed = max(len(peer.outbox) for peer in here.service._peers.values())
        assert 0 < owed < 100  # one message at most, however many were due


def test_a_socket_nobody_listens_at_any_more_is_replaced_and_a_live_one_is_not(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    checkpoint, _ = checkpoint_of([10])
    plan = make_plan(checkpoint, chunk_bytes=100)
    buffer = HostBuffer("glowplug-test", plan.ring_bytes)
    service = Service(plan, buffer, uri="mem:", ranks=1, path=path)
    try:
        with pytest.raises(LocalError, match="can't listen"):
            Service(plan, buffer, uri="mem:", ranks=1, path=path)
    finally:
        service.close()
        buffer.close()
    assert not path.exists()


WRAPPER = """
import sys, json
sys.path.insert(0, sys.argv[1])
from tests.weights.test_service import Node
here = Node(memory=json.loads(sys.argv[2]))
here.filler.allow(3)
here.filler.start()
print(here.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("memory", [None, 400 * KIB])
def test_a_wrapper_that_is_killed_makes_the_ranks_fail_at_once_and_say_why(memory):
    wrapper = subprocess.Popen(
        [sys.executable, "-c", WRAPPER, str(Path(__file__).parents[2]), json.dumps(memory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    path = wrapper.stdout.readline().strip()
    with Rank(path) as rank:
        assert "attached" in rank.hear()
        wrapper.send_signal(signal.SIGKILL)
        told = rank.end()
    wrapper.communicate()
    shutil.rmtree(Path(path).parent)
    assert told["error"] == "BufferLost"
    assert f"pid {wrapper.pid}" in told["message"]
    assert "mem://model" in told["message"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_service_that_breaks_leaves_no_rank_waiting(node, monkeypatch):
    here = node(memory=400 * KIB)
    monkeypatch.setattr(here.filler, "consumed", lambda _: 1 / 0)
    with here.rank() as rank:
        assert rank.hear() == {"attached": "windowed"}
        assert rank.end()["error"] == "BufferLost"


def test_without_anybody_there_a_rank_gives_up_in_time(tmp_path):
    with Rank(tmp_path / "none", timeout_s=0.2) as rank:
        told = rank.end()
    assert told["error"] == "BufferLost"
    assert str(tmp_path / "none") in told["message"]


def test_nothing_is_left_open():
    def opened():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = opened()
    with Node() as here:
        here.filler.start()
        with here.rank() as rank:
            assert rank.end()["descriptors"] <= 5
    assert opened() == before
