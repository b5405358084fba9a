"""Publishing beside a running engine: two at once, and killed at the worst moment. Readers see all of a generation, or none."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import signal
import threading
import time

import pytest

from tests.run.program import eventually

MANY = {"BYTES": str(24_000_000)}  # four of these, of random bytes, take long enough to pack to be interrupted


def test_of_two_starts_that_publish_at_once_one_wins_and_both_end_well(glowplug, compiler):
    report = glowplug.folder / "second.json"
    with (
        glowplug.begin(*compiler, env={"DOES": "wait"}, options=["--wait", "0"]) as first,
        glowplug.begin(*compiler, env={"DOES": "wait"}, options=["--wait", "0", "--report", str(report)]) as second,
    ):
        for start in (first, second):
            start.wait_for("compiled 4 loaded 0", "out")  # both have looked into the store, and found nothing
        for start in (first, second):
            start.process.stdin.close()
        ended = [first.end(), second.end()]
    assert [each.code for each in ended] == [0, 0]
    publishing = [json.loads(path.read_text())["publish"] for path in (glowplug.report, report)]
    assert sorted(each["state"] for each in publishing) == ["exists", "published"]
    [winner] = [each for each in publishing if each["state"] == "published"]
    assert glowplug.latest() == winner["generation"]
    assert sum(bool(each.said("another start published first")) for each in ended) == 1
    assert not glowplug.half_written()
    glowplug.forget()
    assert glowplug.run(*compiler).report["outcome"] == "hit"


def packing(glowplug):
    """The pack that is being written, as soon as there is one with something in it."""

    def begun():
        return [path for path in glowplug.store.glob(".glowplug/spool/pack-*") if path.stat().st_size]

    return begun


def engine_pid(start):
    with open(f"/proc/{start.pid}/task/{start.pid}/children") as children:
        return int(children.read().split()[0])


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), ("SIGTERM", 0)])
def test_an_engine_that_ends_while_its_cache_is_packed_leaves_nothing_to_see(glowplug, vllm, name, code):
    with glowplug.begin(*vllm, env=MANY) as start:
        eventually(packing(glowplug))
        os.kill(engine_pid(start), getattr(signal, name))
        ended = start.end()
    assert (ended.code, ended.report["exit_code"]) == (code, code)
    assert (ended.report["outcome"], ended.report["publish"]["state"]) == ("miss", "cancelled")
    assert ended.said("the engine has ended")
    assert not glowplug.published()
    assert not glowplug.half_written()


def test_a_signal_while_an_ended_commands_cache_is_packed_calls_the_publication_off(glowplug, compiler):
    with glowplug.begin(*compiler, env=MANY) as start:
        eventually(packing(glowplug))
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert ended.code == 0  # the command had done its work
    assert ended.report["publish"]["state"] == "cancelled"
    assert ended.said("interrupted")
    assert not glowplug.published()
    assert not glowplug.half_written()


def test_a_wrapper_that_is_killed_while_it_packs_leaves_nothing_to_readers_and_a_rerun_publishes(glowplug, compiler):
    with glowplug.begin(*compiler, env=MANY) as start:
        eventually(packing(glowplug))
        start.signal(signal.SIGKILL)
        assert start.end().code == -signal.SIGKILL
    assert not glowplug.published()
    assert not list(glowplug.store.glob("v1/*/latest"))
    assert not json.loads(glowplug("cache", "ls", "--store", f"file://{glowplug.store}", "--json").out)
    ended = glowplug.run(*compiler)
    assert b"compiled 0 loaded 4" in ended.out  # they were left on this node
    assert ended.report["publish"]["state"] == "published"
    glowplug.forget()
    assert glowplug.run(*compiler).report["outcome"] == "hit"


def test_a_wrapper_that_is_killed_while_it_restores_leaves_a_folder_that_the_next_start_can_use(glowplug, compiler):
    glowplug.run(*compiler, env=MANY)
    glowplug.forget()
    with glowplug.begin(*compiler) as start:
        eventually(lambda: list(glowplug.live.glob("*/.glowplug/staging-*")))
        start.signal(signal.SIGKILL)
        start.end()
    ended = glowplug.run(*compiler)
    assert (ended.code, ended.report["outcome"]) == (0, "hit")
    assert b"compiled 0 loaded 4" in ended.out
    assert not glowplug.half_written()


def test_a_publication_takes_no_longer_than_its_deadline_and_the_engine_serves_on(glowplug, vllm):
    with glowplug.begin(*vllm, options=["--settle", "10s", "--publish-deadline", "0.5s"]) as start:
        start.wait_for("nothing was published")
        assert start.process.poll() is None
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert (ended.code, ended.report["publish"]["state"]) == (0, "failed")
    assert "publish took longer than 0.5 s (raise --publish-deadline)" in ended.report["publish"]["reason"]
    assert not glowplug.half_written()


def test_a_server_that_still_writes_to_its_cache_is_published_when_it_has_settled(glowplug, vllm):
    with glowplug.begin(*vllm, options=["--settle", "1s"]) as start:
        start.wait_for("ready in")
        [graph] = glowplug.live.glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone/*_0")
        for number in range(3):  # less than the second apart, and for longer than that in all
            time.sleep(0.6)
            graph.with_name(f"late_{number}").write_bytes(b"late")
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert ended.report["publish"]["files"] == 2 + 1 + 3  # graphs, factors, late ones


def test_readiness_over_tcp_is_seen_as_well(glowplug, vllm, unused_port):
    words = [word for word in vllm if word != "--uds" and not word.endswith("/s")]
    with glowplug.begin(*words, "--port", str(unused_port)) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        assert start.end().code == 0


def test_a_port_on_which_another_process_answers_does_not_make_the_engine_ready(glowplug, vllm):
    words = [word for word in vllm if word != "--uds" and not word.endswith("/s")]
    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        ended = glowplug.run(*words, "--port", str(server.server_port))
        server.shutdown()
    assert (ended.code, ended.report["exit_code"]) == (1, 1)
    assert "Address already in use" in ended.err
    assert ended.said(f"another process answers http://127.0.0.1:{server.server_port}/health")
    assert "0.32.0 ready in" not in ended.err
    assert not glowplug.published()


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_an_engine_that_is_never_ready_is_left_alone_after_the_time_is_up(glowplug, vllm):
    with glowplug.begin(*vllm, env={"DOES": "hide"}, options=["--ready-timeout", "1s"]) as start:
        start.wait_for("not ready after 1 s")
        assert start.process.poll() is None
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert (ended.code, ended.report["exit_code"], ended.report["publish"]["state"]) == (0, 0, "skipped")
    assert "ready in" not in ended.err
    assert not glowplug.published()


@pytest.fixture
def unused_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_secret_on_the_command_line_or_in_a_file_s_name_is_not_published(glowplug, compiler):
    ended = glowplug.run(*compiler, "my-very-secret-word", env={"VLLM_API_KEY": "my-very-secret-word"})
    assert ended.code == 0
    [line] = ended.said("nothing was published")
    assert "VLLM_API_KEY" in line
    assert "my-very-secret" not in line
    assert not [path for path in glowplug.store.rglob("*") if path.is_file() and b"my-very-secret" in path.read_bytes()]


def test_a_pack_that_a_killed_publisher_left_is_removed_and_a_living_one_s_is_kept(glowplug, compiler):
    spool = glowplug.store / ".glowplug" / "spool"
    spool.mkdir(parents=True, mode=0o700)
    glowplug.store.chmod(0o700)
    dead, alive = spool / "pack-dead.tmp", spool / "pack-alive.tmp"
    for path in (dead, alive):
        path.write_bytes(b"x")
        os.utime(path, (time.time() - 60, time.time() - 60))
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert glowplug.run(*compiler).report["publish"]["state"] == "published"
    assert (dead.exists(), alive.exists()) == (False, True)
