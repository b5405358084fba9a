"""What goes through the wrapper untouched: output, input, exit code; and commands that can't be started, as a shell says it.

Most of these turn the cache off: the output's path is the same, and the test is faster.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from glowplug.run import pump
from glowplug.run.pump import Pump
from tests.run.program import GLOWPLUG, eventually

PLAIN = ["--no-cache", "--quiet"]
PLAINLY = [*GLOWPLUG, "run", *PLAIN, "--"]
EVERY_BYTE = bytes(range(256)) * 3 + b"\r\n\x1b[31m no end of line"


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


def test_every_byte_of_both_streams_arrives_unchanged_and_none_is_added(glowplug):
    code = f"import sys; sys.stdout.buffer.write({EVERY_BYTE!r}); sys.stderr.buffer.write({EVERY_BYTE[::-1]!r})"
    ended = subprocess.run([*PLAINLY, *python(code)], env=glowplug.env, capture_output=True, check=True)
    assert ended.stdout == EVERY_BYTE
    assert ended.stderr == EVERY_BYTE[::-1]


def test_ten_megabytes_on_both_streams_at_once_arrive_whole(glowplug):
    code = (
        "import os, threading\n"
        "def pour(fd):\n"
        "    left = memoryview((bytes([65 + fd]) * 79 + b'\\n') * 131072)\n"
        "    while left: left = left[os.write(fd, left):]\n"
        "threads = [threading.Thread(target=pour, args=(fd,)) for fd in (1, 2)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
    )
    ended = subprocess.run([*PLAINLY, *python(code)], env=glowplug.env, capture_output=True, check=True)
    assert ended.stdout == (b"B" * 79 + b"\n") * 131072
    assert ended.stderr == (b"C" * 79 + b"\n") * 131072


def test_the_order_of_both_streams_is_kept_where_they_lead_to_one_pipe(glowplug):
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    ended = subprocess.run(
        [*PLAINLY, *python(code)], env=glowplug.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert ended.stdout == b"".join(b"%d\n" % n for n in range(2000))


def test_standard_input_reaches_the_engine(glowplug):
    data = os.urandom(300_000)
    assert glowplug("run", *PLAIN, "--", "cat", input=data).out == data


def test_what_is_written_while_the_engine_runs_arrives_at_once(glowplug):
    with glowplug.begin("cat", options=PLAIN) as start:
        for word in ("one", "two"):
            start.write(word.encode())  # no end of line
            start.wait_for(word, "out")
        assert start.end().code == 0


@pytest.mark.parametrize(
    ("ending", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -SEGV $$", 139)],
)
def test_the_exit_code_is_the_engines_and_128_plus_n_for_a_signal(glowplug, ending, code):
    ended = glowplug.run("sh", "-c", f"echo out; {ending}", options=PLAIN)
    assert (ended.code, ended.out) == (code, b"out\n")
    assert ended.report["exit_code"] == code


def test_the_engine_inherits_folder_umask_and_environment_but_no_descriptor_and_no_signal_mask(glowplug, tmp_path):
    code = (
        "import os, signal\n"
        "print(os.getcwd(), oct(os.umask(0)), sorted(map(int, os.listdir('/proc/self/fd')))[:-1])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.environ['OWN'], 'LC_CTYPE' in os.environ)"
    )
    ended = glowplug("run", *PLAIN, "--", *python(code), env={"OWN": "ümlaut"}, cwd=tmp_path, preexec_fn=lambda: os.umask(0o027))
    assert ended.out.decode() == f"{tmp_path} 0o27 [0, 1, 2]\nset() ümlaut False\n"


def test_a_reader_that_has_gone_ends_the_engine_as_it_would_without_the_wrapper(glowplug):
    line = f"{shlex.join(PLAINLY)} yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], env=glowplug.env, capture_output=True, timeout=30, check=True)
    assert ended.stdout == b"y\n141\n"  # SIGPIPE


def test_an_engine_that_closes_its_output_is_waited_for(glowplug):
    started = time.monotonic()
    ended = glowplug.run("sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 4", options=PLAIN)
    assert (ended.code, ended.report["exit_code"]) == (4, 4)
    assert time.monotonic() - started > 0.5


def test_a_child_that_the_engine_leaves_behind_with_its_output_does_not_hold_the_wrapper_up(glowplug):
    with glowplug.begin("sh", "-c", "sleep 60 & echo pid $!", options=PLAIN, stderr=subprocess.DEVNULL) as start:
        start.wait_for("\n", "out")
        started = time.monotonic()
        start.process.wait(20)
        waited_s = time.monotonic() - started
        orphan = int(start._text["out"].split()[1])
        os.kill(orphan, signal.SIGKILL)
        assert start.end().code == 0
    assert waited_s < 8


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_of_the_wrapper_neither_hang_nor_lose_the_report(glowplug, compiler, closed):
    line = f"{shlex.join([*GLOWPLUG, *glowplug.run_words(compiler)])} {closed}"
    ended = subprocess.run(["bash", "-c", line], env=glowplug.env, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert glowplug.published()
    assert (b"compiled 4" in ended.stdout) == (">&-" not in closed.replace("2>&-", ""))
    [lock] = glowplug.live.glob("*/.glowplug/lock")
    # The lease's note alone: a closed one's number, and the engine's words with it, have gone to no file of ours.
    assert re.fullmatch(rb"[0-9a-f]{32}", lock.read_bytes())


def test_a_slow_reader_gets_every_byte_of_an_ended_engine_though_a_child_of_it_goes_on_writing(glowplug, tmp_path):
    # More than one pipe holds, and less than the two before and behind the wrapper: the engine can end long before it is read.
    code = f"head -c 120000 /dev/zero; yes & touch {tmp_path}/ended"
    with subprocess.Popen(["timeout", "20", *PLAINLY, "sh", "-c", code], env=glowplug.env, stdout=subprocess.PIPE) as process:
        eventually((tmp_path / "ended").exists)
        time.sleep(3)  # the wrapper waits for leftover children for 2
        assert process.stdout.read(120_000) == bytes(120_000)
        assert process.stdout.read(1) in {b"", b"y"}
        process.stdout.close()
    assert process.returncode == 0


def test_arguments_that_are_no_text_reach_the_engine(glowplug):
    ended = glowplug.run("printf", "%s", b"\xff\xfe", options=["--quiet"])
    assert (ended.code, ended.out) == (0, b"\xff\xfe")


def test_a_full_disk_behind_the_output_does_not_hang_the_engine(glowplug):
    with open("/dev/full", "wb") as full:
        ended = glowplug("run", *PLAIN, "--", "sh", "-c", "yes | head -c 1000000; exit 5", stdout=full)
        assert ended.said("the engine's output could not be written: No space left on device")
    assert ended.code == 5


def test_an_engine_behind_a_full_disk_goes_on_and_is_read_again_once_there_is_room(monkeypatch):
    written, full = [], [True]

    def write(_, data):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(bytes(data))

    monkeypatch.setattr(pump, "write_all", write)
    pumping = Pump(1, lambda _: None)
    assert pumping.start()
    os.write(pumping.inlet, b"lost\n")
    eventually(lambda: pumping.error)
    full[0] = False
    os.write(pumping.inlet, b"kept\n")
    eventually(lambda: written)
    pumping.release()
    pumping.join(20)
    assert (written, pumping.error.errno) == ([b"kept\n"], errno.ENOSPC)


def test_a_python_that_writes_to_a_closed_standard_error_ends_as_it_would_without_the_wrapper(glowplug):
    line = f"{shlex.join([*PLAINLY, *python('import sys; print(1, file=sys.stderr)')])} 2>&-"
    assert subprocess.run(["bash", "-c", line], env=glowplug.env, capture_output=True, timeout=60, check=False).returncode == 0


def test_an_output_that_somebody_made_non_blocking_loses_nothing(glowplug):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with subprocess.Popen([*PLAINLY, *python("print('x' * 3_000_000)")], env=glowplug.env, stdout=writing) as process:
        os.close(writing)
        time.sleep(1)  # let the pipe fill: nobody reads yet
        with open(reading, "rb") as stream:
            assert len(stream.read()) == 3_000_001
    assert process.returncode == 0


# --- commands that can't be started


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("no-such-command", 127, "no-such-command: command not found (check the name and PATH)"),
        ("/no/such/file", 127, "/no/such/file: command not found"),
        ("", 127, "the command is an empty word"),
        ("{folder}", 126, "{folder}: is a folder"),
        ("{folder}/plain", 126, "{folder}/plain: is not executable (chmod +x it, or name its interpreter)"),
        ("{folder}/lost", 127, "{folder}/lost: its interpreter does not exist"),
    ],
)
def test_a_command_that_cannot_be_started_is_named_as_a_shell_names_it(glowplug, tmp_path, command, code, says):
    (tmp_path / "plain").write_text("echo no\n")
    (tmp_path / "lost").write_text("#!/no/such/interpreter\n")
    (tmp_path / "lost").chmod(0o755)
    ended = glowplug.run(command.format(folder=tmp_path))
    assert ended.code == code
    assert ended.said(says.format(folder=tmp_path))
    assert "Traceback" not in ended.err
    assert not glowplug.published()


def test_a_script_without_a_first_line_is_run_by_the_shell_with_its_arguments(glowplug, tmp_path):
    script = tmp_path / "serve"
    script.write_text('echo "$0: $1 and $2"; exit 6\n')
    script.chmod(0o755)
    ended = glowplug.run(str(script), "a b", "--c", options=PLAIN)
    assert (ended.code, ended.out.decode()) == (6, f"{script}: a b and --c\n")


def test_the_dashes_before_the_command_may_be_left_out_and_its_own_stay(glowplug):
    assert glowplug("run", *PLAIN, "echo", "-n", "--store", "x", "--", "y").out == b"--store x -- y"
    assert glowplug("run", *PLAIN, "--", "echo", "--", "y").out == b"-- y\n"
