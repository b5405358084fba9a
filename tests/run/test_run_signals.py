"""Signals reach the engine and all of its group; without an engine they end the wrapper; as PID 1 it reaps and loses none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.run.program import GLOWPLUG, eventually
from tests.store.stub import Script, Stub, error, reply

PLAIN = ["--no-cache", "--quiet"]
STORE = ["--store", "s3://bucket/x"]
SLOW = [*STORE, "--restore-deadline", "50s"]

# A leader and a child of it, which both say which signal they got; the leader ends, with its own exit code, when the child has.
FAMILY = """
import os, signal, sys
CAUGHT = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
child = os.fork()
name = "leader" if child else "child"
os.write(1, f"{name} waits\\n".encode())
number = signal.sigwait(CAUGHT)
os.write(1, f"{name} got {signal.Signals(number).name}\\n".encode())
if child:
    os.waitpid(child, 0)
    sys.exit(40)
os._exit(0)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_reaches_the_engine_and_its_child_and_the_exit_code_stays_the_engines(glowplug, name):
    with glowplug.begin(sys.executable, "-c", FAMILY, options=PLAIN) as start:
        start.wait_for("waits", "out", times=2)
        start.signal(getattr(signal, name))
        ended = start.end()
    assert ended.code == 40
    assert sorted(ended.out.decode().split("\n")[2:4]) == [f"child got {name}", f"leader got {name}"]
    assert ended.report["exit_code"] == 40


def test_an_engine_that_does_not_end_at_the_first_signal_gets_the_second_as_well(glowplug, vllm):
    with glowplug.begin(*vllm, env={"DOES": "deaf"}) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        start.wait_for("got signal 15")
        assert start.process.poll() is None
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert (ended.code, ended.err.count("got signal 15"), ended.report["exit_code"]) == (0, 2, 0)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_during_a_slow_restore_ends_the_wrapper_and_starts_no_engine(glowplug, tmp_path, name):
    with Stub(Script(then="stall")) as stub:
        words = ["sh", "-c", f"touch {tmp_path}/started"]
        with glowplug.begin(*words, options=SLOW, env=stub.env) as start:
            eventually(lambda: stub.seen)
            start.signal(getattr(signal, name))
            ended = start.end(20)
    assert ended.code == 128 + getattr(signal, name)
    assert not (tmp_path / "started").exists()
    assert "Traceback" not in ended.err
    assert not ended.said("cold start")  # it was told to end, so nothing is amiss


def test_a_hang_up_that_the_wrapper_was_told_to_ignore_does_not_end_a_slow_restore(glowplug, tmp_path):
    with Stub(Script(then="stall")) as stub:
        options = [*STORE, "--restore-deadline", "1s"]
        words = ["sh", "-c", f"touch {tmp_path}/started"]
        with glowplug.begin(*words, options=options, env=stub.env, prefix=["nohup"]) as start:
            eventually(lambda: stub.seen)
            start.signal(signal.SIGHUP)
            assert start.end().code == 0
    assert (tmp_path / "started").exists()


def test_a_parent_that_ignores_ended_children_does_not_make_the_wrapper_wait_for_ever(glowplug):
    ended = glowplug.run("sh", "-c", "exit 7", options=PLAIN, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert ended.code == 7


def test_a_store_that_hangs_holds_a_command_up_no_longer_than_the_publish_deadline(glowplug, compiler):
    with Stub(no_answer_to_writes) as stub:
        options = [*STORE, "--restore-deadline", "1s", "--publish-deadline", "1s"]  # the lease is waited for as long as a restore
        ended = glowplug.run(*compiler, options=options, env=stub.env, timeout=20)
    assert (ended.code, ended.report["publish"]["state"]) == (0, "cancelled")


def test_a_store_that_hangs_does_not_hold_up_the_end_of_a_server(glowplug, vllm):
    options = [*STORE, "--restore-deadline", "1s"]
    with Stub(no_answer_to_writes) as stub, glowplug.begin(*vllm, options=options, env=stub.env) as start:
        start.wait_for("ready in")  # the lease has been asked for in vain by then
        writes = len(written(stub))
        eventually(lambda: len(written(stub)) > writes)
        start.signal(signal.SIGTERM)
        ended = start.end(20)
    assert (ended.code, ended.report["exit_code"], ended.report["publish"]["state"]) == (0, 0, "cancelled")


def test_a_signal_while_a_store_that_hangs_is_asked_for_the_lease_starts_no_engine(glowplug, tmp_path):
    words = ["touch", f"{tmp_path}/started"]
    with Stub(no_answer_to_writes) as stub, glowplug.begin(*words, options=STORE, env=stub.env) as start:
        eventually(lambda: written(stub))
        start.signal(signal.SIGTERM)
        assert start.end(20).code == 143
    assert not (tmp_path / "started").exists()


def no_answer_to_writes(seen):
    if seen.method == "PUT":
        return Script(then="stall")
    return reply(200, b"<ListBucketResult/>") if "list-type=2" in seen.target else error(404, "NoSuchKey")


def written(stub):
    return [request for request in stub.asked if request.startswith("PUT")]


# --- as the first process of a container


@pytest.fixture
def container():
    words = [shutil.which("unshare") or "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        allowed = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("this user may not make a PID namespace (unshare --pid --mount-proc)")
    return words


ORPHANS = """
import os, time
def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[:2]
    except OSError:
        return ["gone"]
reading, writing = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(writing, b"%d" % os.getpid())
        time.sleep(0.3)  # until its parent has died: then it is an orphan
    os._exit(0)
os.wait()
orphan = os.read(reading, 20).decode()
adopted = state(orphan)[1:] == ["1"]
end = time.monotonic() + 20
while state(orphan) != ["gone"] and time.monotonic() < end:
    time.sleep(0.01)
print("first process", open("/proc/1/cmdline").read().split("\\0")[2], "adopted", adopted, "then", *state(orphan))
"""


def test_the_first_process_of_a_container_reaps_orphans(glowplug, container):
    ended = glowplug.run(sys.executable, "-c", ORPHANS, options=PLAIN, prefix=container)
    assert ended.code == 0
    assert ended.out == b"first process glowplug adopted True then gone\n"


def test_the_first_process_of_a_container_passes_the_stop_on(glowplug, container):
    with glowplug.begin(sys.executable, "-c", FAMILY, options=PLAIN, prefix=container) as start:
        start.wait_for("waits", "out", times=2)
        with open(f"/proc/{start.pid}/task/{start.pid}/children") as children:
            os.kill(int(children.read()), signal.SIGTERM)
        ended = start.end()
    assert ended.code == 40
    assert b"child got SIGTERM" in ended.out


def test_the_first_process_of_a_container_stops_during_a_slow_restore(glowplug, container, tmp_path):
    with (
        Stub(Script(then="stall")) as stub,
        glowplug.begin("touch", f"{tmp_path}/started", options=SLOW, env=stub.env, prefix=container) as start,
    ):
        eventually(lambda: stub.seen)
        with open(f"/proc/{start.pid}/task/{start.pid}/children") as children:
            os.kill(int(children.read()), signal.SIGTERM)
        assert start.end(20).code == 143
    assert not (tmp_path / "started").exists()


# --- on a terminal

COUNTS = """
import signal, sys, os
count = 0
def caught(number, frame):
    global count
    count += 1
    os.write(1, b"interrupt\\n")  # print is not to be interrupted by itself
signal.signal(signal.SIGINT, caught)
print("leads its group:", os.getpgrp() == os.getpid(), flush=True)
print("waits", flush=True)
sys.stdin.readline()
print("interrupted", count, "times", flush=True)
"""


class Terminal:
    """A terminal that controls one program."""

    def __init__(self, words, env):
        self.master, slave = os.openpty()
        # setsid --ctty makes its standard input the controlling terminal.
        self.process = subprocess.Popen(["setsid", "--ctty", *words], stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def wait_for(self, text):
        while text not in self.text:
            assert self._read(), f"{text!r} did not appear in {self.text!r}"

    def type(self, data):
        os.write(self.master, data)

    def end(self):
        while self._read():
            pass
        return self.process.wait(30)

    def _read(self):
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO: the last who had it open has gone
            return False
        self.text += data.decode()
        return bool(data)


def test_on_a_terminal_ctrl_c_reaches_the_engine_once_and_its_exit_code_counts(glowplug):
    with Terminal([*GLOWPLUG, "run", *PLAIN, "--", sys.executable, "-c", COUNTS], glowplug.env) as terminal:
        terminal.wait_for("waits")
        terminal.type(b"\x03")
        terminal.wait_for("interrupt")
        terminal.type(b"\n")
        assert terminal.end() == 0
    assert "leads its group: False" in terminal.text  # or it could not read from the terminal
    assert "interrupted 1 times" in terminal.text


def test_on_a_terminal_a_signal_to_the_wrapper_alone_is_passed_on(glowplug):
    with Terminal([*GLOWPLUG, "run", *PLAIN, "--", sys.executable, "-c", COUNTS], glowplug.env) as terminal:
        terminal.wait_for("waits")
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.wait_for("interrupt")
        terminal.type(b"\n")
        assert terminal.end() == 0


def test_on_a_terminal_the_table_has_colours_and_its_width(glowplug, compiler):
    with Terminal([*GLOWPLUG, *glowplug.run_words(compiler)], glowplug.env | {"TERM": "xterm"}) as terminal:
        assert terminal.end() == 0
    assert "\x1b[36m" in terminal.text
    assert "─" * 60 in terminal.text


def test_ctrl_c_ends_a_command_that_does_not_catch_it_with_130(glowplug):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print('waits', flush=True); signal.pause()"
    with Terminal([*GLOWPLUG, "run", *PLAIN, "--", sys.executable, "-c", code], glowplug.env) as terminal:
        terminal.wait_for("waits")
        terminal.type(b"\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.text
